"""Every operator that has a layer, on sizes that are no multiples of 4, with every combination of ncnn's options."""

import numpy as np
import pytest
from onnx import helper

from opforge.engines.ncnn._convert import RULES
from tests.unit.ncnn.conftest import draw, model_of

CONSTANT = np.random.default_rng(1)


def c(*shape, low=-1.0, high=1.0):
    return CONSTANT.uniform(low, high, shape).astype(np.float32)


def i64(*values):
    return np.array(values, np.int64)


IMAGE, ROWS = (1, 5, 7, 9), (3, 5)

# operator -> cases: (inputs {name: shape}, constants, attributes), inputs of the node in this order.
PLAIN = ("Abs Ceil Cos Erf Exp Floor Mish Neg Relu Round Sigmoid Sin Softplus Tan Tanh HardSwish Identity").split()
UNARY = {n: [({"x": shape}, {}, {}) for shape in ((1, 3, 5, 7), (3, 5), (4, 3, 5), (7,))] for n in PLAIN}
POSITIVE = {name: [({"x": (1, 3, 5, 7)}, {}, {})] for name in ("Log", "Sqrt", "Reciprocal")}
INSIDE = {name: [({"x": (1, 3, 5, 7)}, {}, {})] for name in ("Acos", "Asin", "Atan")}
BINARY = {
    name: [
        ({"a": (1, 5, 7, 9), "b": (1, 5, 7, 9)}, {}, {}),
        ({"a": (1, 5, 7, 9), "b": (1, 5, 1, 1)}, {}, {}),
        ({"a": (1, 1, 7, 1), "b": (1, 5, 1, 9)}, {}, {}),
        ({"a": (3, 5)}, {"b": c(5, low=0.5)}, {}),
        ({"a": (1, 5, 7, 9)}, {"b": c(9, low=0.5)}, {}),
        ({"a": (1, 5, 7, 9)}, {"b": c(1, 5, 1, 1, low=0.5)}, {}),
        ({"a": (1, 5, 7, 9), "b": (7, 9)}, {}, {}),
        ({"a": (7, 9), "b": (1, 5, 7, 9)}, {}, {}),
        ({"a": (3, 5), "b": (3, 1)}, {}, {}),
        ({"a": (1, 5), "b": (3, 1)}, {}, {}),
        ({"a": (5,), "b": (3, 5)}, {}, {}),
        ({"a": (2, 3, 4, 5), "b": (3, 1, 5)}, {}, {}),
        ({"a": (3, 5)}, {"b": np.float32(0.75)}, {}),
        ({"b": (3, 5)}, {"a": np.float32(0.75)}, {}),
    ]
    for name in ("Add", "Sub", "Mul", "Div", "Max", "Min")
}
CASES = {
    **UNARY,
    **POSITIVE,
    **INSIDE,
    **BINARY,
    "Cast": [({"x": ROWS}, {}, {"to": 1})],
    "CastLike": [({"x": ROWS}, {"t": c(1)}, {})],
    "Celu": [({"x": IMAGE}, {}, {"alpha": 0.7})],
    "Elu": [({"x": IMAGE}, {}, {"alpha": 0.7})],
    "HardSigmoid": [({"x": IMAGE}, {}, {}), ({"x": ROWS}, {}, {"alpha": 0.3, "beta": 0.25})],
    "LeakyRelu": [({"x": IMAGE}, {}, {}), ({"x": ROWS}, {}, {"alpha": 0.3})],
    "Selu": [({"x": IMAGE}, {}, {})],
    "Shrink": [({"x": IMAGE}, {}, {"lambd": 0.3, "bias": 0.1})],
    "Gelu": [({"x": IMAGE}, {}, {}), ({"x": ROWS}, {}, {"approximate": "tanh"})],
    "Pow": [({"x": IMAGE}, {"p": np.float32(p)}, {}) for p in (2.0, 3.0, 1.0, -1.0)],
    "Sum": [({"a": IMAGE, "b": IMAGE, "d": (1, 5, 1, 1)}, {}, {}), ({"a": ROWS}, {}, {})],
    "Mean": [({"a": IMAGE, "b": IMAGE, "d": IMAGE}, {}, {})],
    "Clip": [
        ({"x": IMAGE}, {"low": np.float32(-0.5), "high": np.float32(0.25)}, {}),
        ({"x": ROWS}, {"low": np.float32(-0.5)}, {}),
    ],
    "PRelu": [({"x": IMAGE}, {"s": c(5, 1, 1)}, {}), ({"x": IMAGE}, {"s": c(1)}, {})],
    "BatchNormalization": [
        ({"x": shape}, {"s": c(5), "b": c(5), "m": c(5), "v": c(5, low=0.5)}, {})
        for shape in (IMAGE, (1, 5, 7), (1, 5))
    ],
    "Conv": [
        ({"x": IMAGE}, {"w": c(6, 5, 3, 3), "b": c(6)}, {"pads": [1, 0, 2, 1], "strides": [1, 2]}),
        ({"x": IMAGE}, {"w": c(3, 5, 2, 3)}, {"dilations": [2, 1]}),
        ({"x": IMAGE}, {"w": c(5, 1, 3, 3), "b": c(5)}, {"group": 5, "pads": [1, 1, 1, 1]}),
        ({"x": (1, 6, 7, 9)}, {"w": c(4, 3, 3, 3), "b": c(4)}, {"group": 2}),
        ({"x": IMAGE}, {"w": c(8, 5, 3, 3)}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ({"x": (1, 5, 11)}, {"w": c(6, 5, 3), "b": c(6)}, {"pads": [2, 1], "strides": [2]}),
        ({"x": (1, 5, 11)}, {"w": c(5, 1, 3)}, {"group": 5}),
        ({"x": (1, 3, 5, 6, 7)}, {"w": c(4, 3, 2, 3, 3), "b": c(4)}, {"pads": [0, 1, 2, 1, 0, 1]}),
    ],
    "ConvTranspose": [
        ({"x": IMAGE}, {"w": c(5, 6, 3, 3), "b": c(6)}, {"strides": [2, 2], "pads": [1, 0, 1, 1]}),
        ({"x": IMAGE}, {"w": c(5, 3, 2, 2)}, {"strides": [2, 2], "output_padding": [1, 1]}),
        ({"x": (1, 6, 5, 7)}, {"w": c(6, 2, 3, 3), "b": c(4)}, {"group": 2, "strides": [2, 1]}),
        ({"x": (1, 5, 11)}, {"w": c(5, 4, 3), "b": c(4)}, {"strides": [2]}),
    ],
    "MaxPool": [
        ({"x": IMAGE}, {}, {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        ({"x": IMAGE}, {}, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ({"x": (1, 5, 11)}, {}, {"kernel_shape": [3], "strides": [2]}),
        ({"x": (1, 3, 5, 6, 7)}, {}, {"kernel_shape": [2, 3, 3], "strides": [1, 2, 2]}),
    ],
    "AveragePool": [
        ({"x": IMAGE}, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ({"x": IMAGE}, {}, {"kernel_shape": [3, 3], "pads": [1, 0, 1, 0], "count_include_pad": 1}),
        ({"x": IMAGE}, {}, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ({"x": (1, 5, 11)}, {}, {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ],
    "GlobalAveragePool": [({"x": IMAGE}, {}, {}), ({"x": (1, 5, 11)}, {}, {})],
    "GlobalMaxPool": [({"x": IMAGE}, {}, {})],
    "MatMul": [
        ({"a": (3, 5)}, {"b": c(5, 7)}, {}),
        ({"a": (1, 3, 5)}, {"b": c(5, 7)}, {}),
        ({"a": (2, 3, 5)}, {"b": c(5, 7)}, {}),
        ({"a": (3, 5), "b": (5, 6)}, {}, {}),
        ({"a": (1, 3, 4, 5), "b": (1, 3, 5, 7)}, {}, {}),
        ({"a": (1, 3, 4, 5), "b": (5, 7)}, {}, {}),
        ({"a": (2, 3, 4, 5), "b": (3, 5, 7)}, {}, {}),
    ],
    "Gemm": [
        ({"a": (3, 5)}, {"b": c(7, 5), "d": c(7)}, {"transB": 1, "alpha": 0.5, "beta": 2.0}),
        ({"a": (5, 3)}, {"b": c(5, 7)}, {"transA": 1}),
        ({"a": (1, 5)}, {"b": c(5, 7), "d": c(1)}, {}),
        ({"a": (3, 5), "b": (7, 5), "d": (3, 7)}, {}, {"transB": 1, "alpha": 0.5, "beta": 2.0}),
        ({"a": (3, 5), "b": (5, 7)}, {"d": c(3, 1)}, {"beta": 0.5}),
    ],
    "Gather": [
        ({"x": IMAGE}, {"i": i64(1, 2, 3)}, {"axis": 2}),
        ({"x": IMAGE}, {"i": np.int64(-1)}, {"axis": 1}),
        ({"x": (3, 5)}, {"i": np.int64(0)}, {"axis": 0}),
        ({"x": (4, 3, 5)}, {"i": np.int64(1)}, {"axis": 2}),
    ],
    "Reshape": [
        ({"x": IMAGE}, {"s": i64(1, 5, 63)}, {}),
        ({"x": IMAGE}, {"s": i64(5, 63)}, {}),
        ({"x": (3, 20)}, {"s": i64(3, 4, 5)}, {}),
        ({"x": (1, 3, 20)}, {"s": i64(1, 3, 2, 5, 2)}, {}),
    ],
    "Flatten": [({"x": IMAGE}, {}, {}), ({"x": (3, 4, 5)}, {}, {"axis": 2})],
    "Squeeze": [({"x": (1, 5, 1, 9)}, {"a": i64(2)}, {}), ({"x": (1, 5, 1, 9)}, {"a": i64(0, 2)}, {})],
    "Unsqueeze": [({"x": (3, 5)}, {"a": i64(0)}, {}), ({"x": (3, 5)}, {"a": i64(1, 3)}, {})],
    "Transpose": [
        *[({"x": (1, 3, 5, 7)}, {}, {"perm": p}) for p in ([0, 2, 3, 1], [0, 3, 1, 2], [0, 2, 1, 3], [0, 1, 3, 2])],
        *[({"x": (2, 3, 5, 7)}, {}, {"perm": p}) for p in ([1, 0, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1], [0, 3, 1, 2])],
        ({"x": (1, 3, 5, 7)}, {}, {"perm": [1, 0, 2, 3]}),
        ({"x": (3, 5)}, {}, {}),
        ({"x": (1, 2, 3, 5, 7)}, {}, {"perm": [0, 3, 1, 2, 4]}),
    ],
    "Concat": [
        ({"a": (1, 3, 5, 7), "b": (1, 2, 5, 7), "d": (1, 4, 5, 7)}, {}, {"axis": 1}),
        ({"a": (3, 5), "b": (3, 2)}, {}, {"axis": -1}),
        ({"a": (1, 3, 5)}, {"b": c(2, 3, 5)}, {"axis": 0}),
        ({"a": (1, 3, 5, 7)}, {"b": c(1, 3, 2, 7)}, {"axis": 2}),
    ],
    "Slice": [
        ({"x": IMAGE}, {"s": i64(1, 2), "e": i64(4, -1), "a": i64(1, 3)}, {}),
        ({"x": (4, 5)}, {"s": i64(1), "e": i64(3), "a": i64(0)}, {}),
        ({"x": (4, 3, 5)}, {"s": i64(-2), "e": i64(2**62), "a": i64(2)}, {}),
    ],
    "Split": [
        ({"x": (1, 6, 5, 7)}, {"s": i64(1, 2, 3)}, {"axis": 1}),
        ({"x": (3, 6)}, {"s": i64(2, 1, 3)}, {"axis": 1}),
    ],
    "Pad": [
        ({"x": IMAGE}, {"p": i64(0, 0, 1, 2, 0, 0, 3, 0), "v": np.float32(0.5)}, {}),
        ({"x": IMAGE}, {"p": i64(0, 0, 1, 2, 0, 0, 3, 1)}, {"mode": "reflect"}),
        ({"x": IMAGE}, {"p": i64(0, 0, 1, 2, 0, 0, 3, 1)}, {"mode": "edge"}),
        ({"x": IMAGE}, {"p": i64(0, 1, 0, 0, 0, 2, 0, 0)}, {}),
        ({"x": (3, 5)}, {"p": i64(1, 0, 0, 2)}, {}),
    ],
    "Tile": [({"x": (1, 3, 5)}, {"r": i64(1, 2, 3)}, {}), ({"x": (3, 5)}, {"r": i64(2, 2)}, {})],
    "DepthToSpace": [({"x": (1, 8, 3, 5)}, {}, {"blocksize": 2, "mode": m}) for m in ("DCR", "CRD")],
    "SpaceToDepth": [({"x": (1, 3, 4, 6)}, {}, {"blocksize": 2})],
    "Softmax": [
        ({"x": IMAGE}, {}, {"axis": 1}),
        ({"x": IMAGE}, {}, {"axis": -1}),
        ({"x": (3, 5)}, {}, {"axis": 0}),
        ({"x": (2, 3, 4, 5)}, {}, {"axis": 2}),
    ],
    "LogSoftmax": [({"x": (3, 5)}, {}, {"axis": -1})],
    "LayerNormalization": [
        ({"x": (3, 5)}, {"s": c(5), "b": c(5)}, {}),
        ({"x": (1, 3, 5, 7)}, {"s": c(5, 7), "b": c(5, 7)}, {"axis": 2, "epsilon": 1e-3}),
        ({"x": (4, 3, 7)}, {"s": c(7)}, {}),
    ],
    "RMSNormalization": [({"x": (3, 5)}, {"s": c(5)}, {})],
    "InstanceNormalization": [({"x": IMAGE}, {"s": c(5), "b": c(5)}, {"epsilon": 1e-3})],
    "GroupNormalization": [({"x": (1, 6, 7, 9)}, {"s": c(6), "b": c(6)}, {"num_groups": 3})],
    "LRN": [({"x": IMAGE}, {}, {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 1.5})],
    "CumSum": [({"x": (3, 5)}, {"a": np.int64(1)}, {}), ({"x": (1, 3, 5)}, {"a": np.int64(2)}, {})],
    "Resize": [
        (
            {"x": IMAGE},
            {"": None, "s": np.array([1, 1, 2, 3], np.float32)},
            {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
        ),
        ({"x": IMAGE}, {"": None, "s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "nearest"}),
        ({"x": IMAGE}, {"": None, "s": np.array([1, 1, 2, 1], np.float32)}, {"mode": "linear"}),
        (
            {"x": IMAGE},
            {"": None, "_": None, "z": i64(1, 5, 10, 13)},
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        ),
        ({"x": IMAGE}, {"": None, "s": np.array([1, 1, 2, 2], np.float32)}, {"mode": "cubic"}),
    ],
    **{
        name: [({"x": IMAGE}, {"a": i64(2, 3)}, {"keepdims": keep}) for keep in (0, 1)]
        + [
            ({"x": (3, 5)}, {"a": i64(0)}, {"keepdims": 0}),
            ({"x": (4, 3, 5)}, {"a": i64(1)}, {}),
            ({"x": ROWS}, {}, {"keepdims": 0}),
        ]
        for name in RULES
        if name.startswith("Reduce") and name not in ("ReduceLogSum",)
    },
    "ReduceLogSum": [({"x": IMAGE}, {"a": i64(1)}, {})],
}
RANGES = {
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal", "Div", "ReduceLogSum"), (0.25, 2.0)),
    **dict.fromkeys(("Round", "Floor", "Ceil", "HardSwish", "HardSigmoid", "Selu", "Mish"), (-4.0, 4.0)),
}
OPSETS = {"RMSNormalization": 23}


def rows():
    for name, cases in CASES.items():
        for k, case in enumerate(cases):
            yield pytest.param(name, *case, id=f"{name}-{k}")


@pytest.mark.parametrize("name, inputs, constants, attributes", list(rows()))
def test_a_layer_gives_what_onnx_runtime_gives(agree, name, inputs, constants, attributes):
    low, high = RANGES.get(name, (-1.0, 1.0))
    arrays = {n: draw(shape, seed=k, low=low, high=high) for k, (n, shape) in enumerate(inputs.items())}
    order = sorted([*inputs, *constants]) if name in BINARY else [*inputs, *constants]
    words = ["" if constants.get(n, 0) is None else n for n in order]
    outputs = [f"y{k}" for k in range(3)] if name == "Split" else ["y"]
    model = model_of(
        [],
        {n: (list(shape), "f") for n, shape in inputs.items()},
        outputs,
        {n: v for n, v in constants.items() if v is not None},
        opset=OPSETS.get(name, 21),
    )
    model.graph.node.append(helper.make_node(name, words, outputs, **attributes))
    loose = name in ("Tan", "Exp", "Mish", "Gelu", "Erf", "Pow")
    agree(model, arrays, atol=2e-5 if loose else 4e-6, rtol=1e-4 if loose else 2e-5)


def test_every_rule_has_a_case():
    """Swish is in test_models.py: ONNX Runtime has it only written out."""
    assert set(RULES) == {*CASES, "Swish"}
    assert all(CASES.values())
