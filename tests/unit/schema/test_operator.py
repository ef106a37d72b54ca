"""The operator object: declaration, description, hash, and where calls go."""

import copy
import inspect
import pickle
import pydoc
import sys
import types

import numpy as np
import pytest

from opforge.errors import ArgumentError, CandidateError, SchemaError, UnsupportedError
from opforge.schema import Operator, f32, f64, floating, hosts, register, snake_case, unregister


def make(name="Probe", signature="(x: T[*S]; lo: float = 0.1) -> (y: T[*S])", **options):
    options.setdefault("types", {"T": floating})
    return Operator("test.schema", name, signature, **options)


class Formula:
    def __init__(self, canonical):
        self.canonical = canonical


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CustomGELU", "custom_gelu"), ("PReLU", "p_re_lu"), ("ModSigmoid", "mod_sigmoid"), ("Mish", "mish"),
        ("SparseMatMul", "sparse_mat_mul"), ("Conv2D", "conv2d"), ("Conv2DTranspose", "conv2d_transpose"),
        ("GRU2Cell", "gru2_cell"), ("X", "x"), ("CustomGELUGrad", "custom_gelu_grad"), ("Log1p", "log1p"),
    ],
)  # fmt: skip
def test_host_names(name, expected):
    assert snake_case(name) == expected
    assert make(name).host_name == expected


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"domain": "com example"}, "bad domain"),
        ({"domain": ""}, "bad domain"),
        ({"domain": "com..x"}, "bad domain"),
        ({"name": "lower"}, "bad operator name"),
        ({"name": "With_Underscore"}, "bad operator name"),
        ({"since_version": 0}, "bad since_version"),
        ({"since_version": True}, "bad since_version"),
        ({"since_version": "1"}, "bad since_version"),
        ({"autocast": "fp32"}, "bad autocast.*promote, f32, lower, none"),
        ({"nan_policy": "raise"}, "bad nan_policy"),
        ({"host_name": "a-b"}, "bad host_name"),
        ({"host_name": "class"}, "bad host_name"),
        ({"signature": "(class: T[n]) -> (y: T[n])"}, "Python keyword.*got: class"),
        ({"signature": "(x: T[n]) -> (y: T[m])"}, "an output's dimension is not known"),
        ({"types": {}}, "no dtypes are given"),
        ({"types": {"T": ["float32"], "U": ["f32"]}}, "variable that the signature does not have"),
        ({"types": {"T": ["u16"]}}, "bad dtype for T"),
        ({"types": {"T": ["complex64"]}}, "bad dtype for T.*got: 'complex64'"),
        ({"types": {"T": []}}, "bad dtype for T.*got: nothing"),
    ],
)
def test_a_wrong_declaration_names_the_operator(change, words):
    arguments = {
        "domain": "test.schema",
        "name": "Probe",
        "signature": "(x: T[n]) -> (y: T[n])",
        "types": "T: f32",
    } | change
    with pytest.raises(SchemaError, match=f"(?s){arguments['domain']}::{arguments['name']}: .*{words}"):
        Operator(**arguments)


def test_types_may_be_text_or_mapping():
    by_text = make(types="T: f32 f64")
    assert by_text.types == {"T": (f32, f64)}
    assert make(types={"T": [np.float32, "float64"]}).schema_hash == by_text.schema_hash
    assert make(types={"T": f32}).types_text == "T: f32"


def test_description_is_useful():
    operator = make(doc="Clips.\n\n    Second line.")
    assert repr(operator) == (
        "<opforge.Operator test.schema::Probe:1 (x: T[*S]; lo: float = 0.1) -> (y: T[*S]) {T: f16 bf16 f32 f64}>"
    )
    text = pydoc.render_doc(operator, renderer=pydoc.plaintext)
    for line in ("test.schema::Probe:1", "(x: T[*S]; lo: float = 0.1) -> (y: T[*S])", "Clips.", "Second line."):
        assert line in text
    assert f"Declared at {__file__}:" in text
    assert operator.module == __name__
    assert str(inspect.signature(operator)).startswith("(x, *, lo: 'float' = 0.1")
    assert operator.__name__ == "probe"
    assert (operator.key, operator.qualified_name) == ("test.schema::Probe:1", "test.schema::Probe")


def test_python_signature_of_optional_and_variadic():
    assert str(inspect.signature(make(signature="(x: T[n], b?: T[n], c?: T[n]; k: int) -> (y: T[n])"))) == (
        "(x, b=None, c=None, *, k: 'int')"
    )
    assert str(inspect.signature(make(signature="(x: T[n], *xs: T[n]) -> (y: T[n])"))) == "(x, *xs)"
    assert str(inspect.signature(make(signature="(b?: T[n], x: T[n]) -> (y: T[n])"))) == "(b, x)"


def test_schema_hash_covers_what_callers_agree_on():
    base = make()
    same = make(signature=" ( x:T[*S];lo:float=0.1 )->( y:T[*S] )", doc="other words", host_name="other")
    assert base.schema_hash == same.schema_hash
    assert len(base.schema_hash) == 64
    changed = [
        make("Other"), make(since_version=2), make(types="T: f32"), make(signature="(x: T[*S]) -> (y: T[*S])"),
        make(signature="(x: T[*S]; lo: float = 0.2) -> (y: T[*S])"), make(pure=False), make(deterministic=False),
        make(differentiable=True), make(autocast="f32"), make(nan_policy="ignore"), make(formula=Formula("x")),
        make(formula=Formula("x + 1")), make(is_gradient=True),
    ]  # fmt: skip
    hashes = {operator.schema_hash for operator in [base, *changed]}
    assert len(hashes) == len(changed) + 1
    assert make(differentiable=True).schema_hash == make(gradient="return g0").schema_hash


def test_flags():
    assert make().flags == 0b00011
    assert make(gradient="return g0").flags == 0b00111
    assert make(pure=False, deterministic=False, is_gradient=True).flags == 0b10000
    assert make(formula=Formula("x"), gradient="return g0").flags == 0b01111
    assert make(gradient="return g0", differentiable=False).flags == 0b00011


def test_gradient_and_derived_are_made_once_when_asked_for():
    made = []
    inner = make("ProbeGrad", is_gradient=True)
    operator = make(gradient=lambda: made.append("g") or "return g0", derived=lambda: made.append("d") or [inner])
    assert made == []
    assert operator.differentiable
    assert operator.gradient == operator.gradient == "return g0"
    assert operator.derived == operator.derived == (inner,)
    assert made == ["g", "d"]


def test_arrange():
    operator = make(signature="(x: T[n], b?: T[n], *xs: T[n]) -> (y: T[n])")
    assert operator.arrange([1, 2, 3, 4], {}) == [1, 2, (3, 4)]
    assert operator.arrange([1, None], {"xs": [3, 4]}) == [1, None, (3, 4)]
    assert operator.arrange([], {"xs": [3], "x": 1}) == [1, None, (3,)]
    plain = make(signature="(x: T[n], b?: T[n], c?: T[n]) -> (y: T[n])")
    assert plain.arrange([1], {}) == [1, None, None]
    assert plain.arrange([1], {"c": 3}) == [1, None, 3]
    for tensors, named, words in [
        ([], {}, r"wrong number of inputs\n  expected: 1 to 3 \(x, b\?, c\?\)\n  got: 0"),
        ([1, 2, 3, 4], {}, "got: 4"),
        ([None], {}, "got: 0"),
        ([1], {"x": 1}, "input given twice\n  got: x"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            plain.arrange(tensors, named)
    with pytest.raises(ArgumentError, match=r"3 or more \(x, b\?, \*xs\)"):
        operator.arrange([1, 2], {})


@pytest.fixture
def host(monkeypatch):
    """A host module that records its calls, for tensors of a module named fakelib."""
    module = types.ModuleType("opforge.frameworks.fakelib")
    module.calls = []
    module.call = lambda operator, tensors, attributes: module.calls.append(("call", tensors, attributes)) or "out"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(hosts.HOSTS, "fakelib", module.__name__)
    return module


class Tensor:
    __module__ = "fakelib.core"


class Subclass(Tensor):
    __module__ = "somebody.elses"


@pytest.mark.parametrize("kind", [Tensor, Subclass])
def test_call_goes_to_the_host_of_the_tensor(host, kind):
    operator = make()
    tensor = kind()
    for _ in range(2):
        assert operator(tensor, lo=0.5) == "out"
        assert operator(x=tensor) == "out"
    assert host.calls == [("call", [tensor], {"lo": 0.5}), ("call", [tensor], {})] * 2


def test_a_number_goes_along_with_a_frameworks_tensor(host):
    operator = make(signature="(a: T[*A], b: T[*B]) -> (y: T[bcast(A, B)])")
    tensor = Tensor()
    assert operator(2.0, tensor) == "out"
    assert operator(np.ones(3), tensor) == "out"
    assert [call[1][1] for call in host.calls] == [tensor, tensor]
    assert list(operator.routes) == [Tensor], "the type of a number decides nothing for later calls"


def test_variadic_tensors_are_looked_into(host):
    operator = make(signature="(*xs: T[n]) -> (y: T[n])")
    tensor = Tensor()
    operator(np.ones(1), tensor)
    operator(xs=[tensor])
    assert [call[1] for call in host.calls][1] == [(tensor,)]


def test_specialize_is_asked_once_and_called_with_the_callers_words(host):
    asked = []

    def specialize(operator):
        asked.append(operator)
        return lambda *tensors, **attributes: (tensors, attributes)

    host.specialize = specialize
    operator = make()
    tensor = Tensor()
    for _ in range(3):
        assert operator(tensor, lo=2) == ((tensor,), {"lo": 2})
    assert asked == [operator]
    operator.set_route(Tensor, lambda *tensors, **attributes: "route")
    assert operator(tensor) == "route"
    assert operator(x=tensor) == "route"


def test_a_value_of_no_host():
    with pytest.raises(CandidateError) as caught:
        make()(object())
    text = str(caught.value)
    assert "test.schema::Probe: no framework here takes arguments of type builtins.object" in text
    assert "torch" in text and "NumPy" in text


def test_reference_is_float64():
    seen = {}

    def reference(x, i, b, lo):
        seen.update(x=x.dtype, i=i.dtype, b=b, lo=lo)
        return x * lo, i

    operator = make(
        signature="(x: T[n], i: i32[n], b?: T[n]; lo: float = 0.1) -> (y: T[n], z: i32[n])",
        reference_function=reference,
    )
    y, z = operator.reference(np.ones(2, np.float16), np.arange(2, dtype=np.int32), lo=0.5)
    assert (y.dtype, z.dtype) == (np.float64, np.int32)
    assert seen == {"x": np.float64, "i": np.int32, "b": None, "lo": 0.5}
    assert operator.reference(i=[1], x=[2.0])[0].tolist() == [2.0 * float(np.float32(0.1))]
    with pytest.raises(ArgumentError, match="unknown attribute"):
        operator.reference([1.0], [1], hi=3)


def test_no_reference_says_what_to_do():
    with pytest.raises(
        UnsupportedError, match=r"test.schema::Probe: the operator has no reference\n  to do: declare it"
    ):
        make().reference(1.0)


def test_copies_are_the_operator_and_pickles_find_it():
    operator = register(make("Pickled"))
    try:
        assert copy.deepcopy({"op": operator})["op"] is operator
        assert copy.copy(operator) is operator
        assert pickle.loads(pickle.dumps(operator)) is operator
    finally:
        unregister(operator)
