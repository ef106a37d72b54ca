"""Plugins by decorators: signatures, dtypes, and kernels whose source gives the operator's values in the emulator."""

import types

import numpy as np
import pytest

import opforge as of
from opforge.cuda import call, emulate
from opforge.engines.tensorrt._quick import _Quick
from opforge.errors import UnsupportedError
from opforge.ops import custom_gelu, sparse_matmul
from tests.unit.tensorrt import double
from tests.unit.tensorrt.conftest import gate


class ShapeExpr(int):
    """Sizes that are known, with the operations that the real ones have: no number may stand on the left."""

    def __add__(self, other):
        return ShapeExpr(int(self) + int(other))

    def __sub__(self, other):
        return ShapeExpr(int(self) - int(other))

    def __mul__(self, other):
        return ShapeExpr(int(self) * int(other))

    def __eq__(self, other):
        return ShapeExpr(int(self) == int(other))

    __hash__ = int.__hash__
    __radd__ = __rsub__ = __rmul__ = None


class Desc:
    def __init__(self, shape_expr, dtype):
        self.shape_expr, self.dtype = shape_expr, dtype


class Exprs(list):
    def __init__(self, length):
        super().__init__([None] * length)

    @classmethod
    def from_tuple(cls, values):
        made = cls(len(values))
        made[:] = values
        return made


plugin = types.SimpleNamespace(
    ShapeExpr=ShapeExpr, SymInt32=ShapeExpr, ShapeExprs=Exprs, SymIntExprs=Exprs, SymExprs=Exprs, TensorDesc=Desc,
    from_shape_expr=Desc, cdiv=lambda a, b: ShapeExpr(-(-int(a) // b)), max=lambda a, b: ShapeExpr(max(int(a), b)),
    KernelLaunchParams=type("KernelLaunchParams", (), {}),
    AutoTuneCombination=lambda types, layouts: (types, layouts),
)  # fmt: skip

LAUNCH = """
extern "C" int launch(const {x}* x, const {x}* w, {integers}, {x}* y, cudaStream_t stream) {{
  {name}<<<{grid}, {block}, 0, stream>>>({inputs}, {names}, y);
  return cudaGetLastError();
}}
"""


def quick(operator):
    return _Quick(double, plugin, operator, lambda source: source)


def run(tmp_path, operator, arrays, **attributes):
    made = quick(operator)
    kinds = {
        np.dtype("float32"): ("float", double.DataType.FLOAT),
        np.dtype("float16"): ("__half", double.DataType.HALF),
    }
    kind, dtype = kinds[arrays[0].dtype]
    descs = [Desc([ShapeExpr(size) for size in array.shape], dtype) for array in arrays]
    values = operator.coerce(attributes)
    name, source, launch, extra = made.kernel(*descs, *values.values(), (None,), 0)
    (described,) = made.describe(*descs, **values)
    assert described.dtype == dtype
    shape = tuple(map(int, described.shape_expr))
    names = [f"n{k}" for k in range(len(extra))]
    path = tmp_path / "entry.cu"
    text = LAUNCH.format(
        x=kind, integers=", ".join(f"int {n}" for n in names), name=name, grid=int(launch.grid_x),
        block=launch.block_x, inputs="x, w"[: 1 if len(arrays) == 1 else 4], names=", ".join(names),
    )  # fmt: skip
    path.write_text(source + text)
    result = np.full(shape, 7, arrays[0].dtype)
    pointers = [*arrays, *([None] if len(arrays) == 1 else [])]
    integers = [np.int32(int(one)) for one in extra]
    done = call(emulate(path, mode="address"), "launch", *pointers, *integers, result, None)
    assert done.ok, done.findings
    return result


@pytest.mark.parametrize("shapes", [((5, 7), (5, 7)), ((5, 1, 3), (4, 1)), ((3,), (2, 1)), ((), ())])
def test_kernels_of_broadcasting_formulas(tmp_path, rng, shapes):
    x, w = (np.asarray(rng.normal(size=shape), np.float32) for shape in shapes)
    found = run(tmp_path, gate, [x, w], slope=0.25, bias=1.0)
    np.testing.assert_allclose(found, gate.reference(x, w, slope=0.25, bias=1.0), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_kernels_of_formulas_of_one_shape_take_the_number_of_elements_only(tmp_path, rng, dtype):
    x = rng.normal(size=(3, 100)).astype(dtype)
    found = run(tmp_path, custom_gelu, [x])
    np.testing.assert_allclose(found, custom_gelu.reference(x), rtol=2e-3 if dtype == np.float16 else 1e-5, atol=1e-3)
    _, _, launch, extra = quick(custom_gelu).kernel(
        Desc([ShapeExpr(300)], double.DataType.FLOAT), *custom_gelu.coerce({}).values(), (None,), 0
    )
    assert (list(map(int, extra)), int(launch.grid_x), launch.block_x) == ([300], 2, 256)


def test_dtypes_are_those_of_the_declaration_that_tensorrt_has():
    ((words, layout),) = quick(gate).autotune(None, None, None)
    assert layout == "LINEAR"
    columns = [column.split("|") for column in words.split(", ")]
    assert columns == [["FP16", "BF16", "FP32"]] * 3


@pytest.mark.parametrize("sizes", [(0, 0), (0, 1), (1, 0), (1, 1), (1, 4), (4, 1), (4, 4)])
def test_shapes_are_broadcast_exactly(sizes):
    descs = [Desc([ShapeExpr(size)], double.DataType.FLOAT) for size in sizes]
    (found,) = quick(gate).describe(*descs)
    assert tuple(map(int, found.shape_expr)) == np.broadcast_shapes(*((size,) for size in sizes))


def test_what_cannot_be_such_a_plugin_says_so():
    with pytest.raises(UnsupportedError, match=r"cannot be a plugin by decorators(.|\n)*no formula"):
        quick(sparse_matmul)
    with pytest.raises(UnsupportedError, match="one kernel cannot compute this operator"):
        quick(gate.gradient_operator)


def test_a_version_without_decorators_says_so(trt):
    with pytest.raises(UnsupportedError, match=r"no plugins by decorators(.|\n)*tensorrt.plugin.aot_impl"):
        of.tensorrt.register_quick(gate)
