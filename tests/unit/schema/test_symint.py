"""Shape inference on PyTorch's symbolic ints: arithmetic only, guards only where a call's validity hangs on them."""

import pytest

from opforge.errors import ArgumentError
from opforge.schema import Guards, Signature, f32, i64

torch = pytest.importorskip("torch")
shapes = pytest.importorskip("torch.fx.experimental.symbolic_shapes")
sources = pytest.importorskip("torch._dynamo.source")
pytestmark = pytest.mark.torch

SPMM = Signature.parse("(values: T[nnz], indices: I[nnz], indptr: I[m+1], dense: T[k, n]) -> (out: T[m, n])")
BROADCAST = Signature.parse("(a: T[*A], b: T[*B]) -> (y: T[bcast(A, B)])")


@pytest.fixture
def environment():
    return shapes.ShapeEnv()


def symbol(environment, value, name):
    source = sources.ConstantSource(name)
    made = environment.create_symbol(value, source=source, dynamic_dim=shapes.DimDynamic.DYNAMIC, constraint_dim=None)
    return environment.create_symintnode(made, hint=value, source=source)


def test_output_dimensions_are_expressions(environment):
    nnz, p, k, n = (symbol(environment, v, s) for v, s in [(5, "nnz"), (4, "p"), (3, "k"), (7, "n")])
    binding = SPMM.bind([[nnz], [nnz], [p], [k, n]], [f32, i64, i64, f32])
    (shape,) = binding.output_shapes
    assert shape[1] is n
    assert str(shape[0].node.expr) == f"{p.node.expr} - 1"
    assert environment.guards == [], "equal symbols and a solved dimension need no guard"


def test_two_symbols_of_one_name_are_compared_once(environment):
    a, b = symbol(environment, 5, "a"), symbol(environment, 5, "b")
    SPMM.bind([[a], [b], [4], [3, 7]], [f32, i64, i64, f32])
    assert len(environment.guards) == 1


def test_a_wrong_symbol_is_our_error(environment):
    a, b = symbol(environment, 5, "a"), symbol(environment, 6, "b")
    with pytest.raises(ArgumentError, match=r"my::Op, argument indices: dimension 0 is wrong"):
        SPMM.bind([[a], [b], [4], [3, 7]], [f32, i64, i64, f32], where="my::Op")


def test_broadcast_with_one_keeps_the_symbol(environment):
    a = symbol(environment, 5, "a")
    binding = BROADCAST.bind([[a, 1], [1, 3]], [f32, f32])
    assert binding.output_shapes[0][0] is a
    assert environment.guards == []


def test_unbacked_sizes_with_recording_guards(environment):
    size = environment.create_unbacked_symint()
    recorded = []

    def require(condition):
        if isinstance(condition, torch.SymBool):
            recorded.append(condition)
            return True
        return bool(condition)

    guards = Guards(decide=lambda condition: not isinstance(condition, torch.SymBool) and condition, require=require)
    binding = SPMM.bind([[size], [5], [size], [3, 7]], [f32, i64, i64, f32], guards=guards)
    assert binding.dims["nnz"] == 5
    assert len(recorded) == 2  # nnz == 5, m >= 0
