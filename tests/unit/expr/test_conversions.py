"""Conversions out of range, of NaN and infinities are the same on every path; so are those of `Cast` in the runtime."""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from opforge.build import abi, library_for, load_library
from opforge.build.interpreter import interpreter_library
from opforge.build.plan import plan_library
from opforge.cuda import emulate_operators
from opforge.expr.exact import evaluate
from opforge.frameworks import numpy_host
from opforge.onnx import one_node_model
from tests.unit.expr.conversions import NUMPY, OPERATORS, PAIRS, VALUES, compare, expected
from tests.unit.kernels.one_node import compiled, model_of

COMPILED = ("FloatToInteger", "IntegerToInteger")  # the functions are those of the interpreter
EVERY = pytest.mark.parametrize("name", OPERATORS)


@EVERY
def test_reference(name):
    found = OPERATORS[name].reference(VALUES)
    compare(name, [y.astype(NUMPY[target]) for (_, target), y in zip(PAIRS[name], found, strict=True)])


@EVERY
def test_exactly(name):
    rights = expected(name)
    for (_, target), output, right in zip(PAIRS[name], OPERATORS[name].formula.outputs, rights, strict=True):
        found = [evaluate(output.node, [v], [], 40) for v in VALUES.tolist()]
        whole = [f if isinstance(f, bool) else float(f) if target in ("f32", "f64") else int(f) for f in found]
        np.testing.assert_array_equal(np.array(whole, right.dtype), right)


def calls(name, library, device=abi.DEVICE_CPU):
    """Dense, in whole vectors and their tails, and strided."""
    operator = OPERATORS[name]
    for n in (1, 7, len(VALUES)):
        compare(name, numpy_host.call(operator, [VALUES[:n]], {}, library=library, device=device), VALUES[:n])
    wide = np.repeat(VALUES, 3)
    compare(name, numpy_host.call(operator, [wide[::3]], {}, library=library, device=device))


@pytest.mark.compiler
def test_compiled():
    library = library_for([OPERATORS[name] for name in COMPILED])
    for name in COMPILED:
        calls(name, library)


@EVERY
def test_interpreted(name):
    calls(name, interpreter_library(plan_library([OPERATORS[name]])))


@pytest.mark.compiler
def test_cuda_emulated():
    library = load_library(emulate_operators([OPERATORS[name] for name in COMPILED]).path)
    for name in COMPILED:
        calls(name, library, abi.DEVICE_CUDA)


@EVERY
def test_onnx_bodies(name):
    import onnxruntime

    model = one_node_model(OPERATORS[name], dtypes={"T": "f32"})
    for item in (*model.graph.input, *model.graph.output):
        item.type.tensor_type.ClearField("shape")
    feeds = {model.graph.input[0].name: VALUES}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    compare(name, session.run(None, feeds))
    with np.errstate(all="ignore"):
        compare(name, ReferenceEvaluator(model).run(None, feeds))


NUMBERS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.bool_]
NUMBERS += [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def by_the_rule(x, dtype):
    """Conversion of an array, as docs/design/numbers.md has it."""
    source, target = np.dtype(x.dtype), np.dtype(dtype)
    floats = [np.dtype(one) for one in NUMBERS[:4]]
    with np.errstate(all="ignore"):
        if source not in floats or target in floats or target == np.bool_:
            return x != 0 if target == np.bool_ else x.astype(dtype)
    limits = np.iinfo(target)
    whole = [
        0 if v != v else max(limits.min, min(limits.max, v if v in (np.inf, -np.inf) else int(v))) for v in x.tolist()
    ]
    return np.array(whole, dtype)


@pytest.mark.parametrize("source", NUMBERS)
def test_cast_of_the_runtime(source):
    with np.errstate(all="ignore"):
        x = by_the_rule(VALUES.astype(np.float64), source)
    for target in NUMBERS:
        if source is not target:
            to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
            model, feeds = model_of("Cast", [x], (target,), to=to)
            (found,) = compiled(model, feeds)
            right = by_the_rule(x, target)
            if target is ml_dtypes.bfloat16:  # NumPy does not know of its NaN
                found, right = found.astype(np.float32), right.astype(np.float32)
            np.testing.assert_array_equal(found, right, err_msg=f"{source} to {target}")
