"""Each upgrade rule against the old meaning: NumPy by the words of the old documentation, else onnx's own reference."""

import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import opforge as of
from opforge.errors import UnsupportedError
from opforge.passes import upgrade_opset
from opforge.passes._opset_neutral import NEUTRAL
from opforge.passes._opset_rules import RULES
from opforge.passes._upgrade import TARGET

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
B = RNG.standard_normal((2, 3)).astype(np.float32)
IMAGE = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
CHANNEL = np.array([0.5, 1.5, 2.5], np.float32)
SAMPLE = np.abs(RNG.standard_normal((3, 4, 5))).astype(np.float32)
SPREAD = np.array([np.inf, -np.inf, 1e38, -2, 0.5], np.float32)


def run(tmp_path: Path, op, opset, inputs, attributes, *, constant=(), outputs=1, open_dims=False):
    """Compile one node of an old opset and run it; ``constant`` names inputs that stand in the model."""
    names = [f"i{k}" for k in range(len(inputs))]
    infos, weights = [], []
    for k, (name, data) in enumerate(zip(names, inputs, strict=True)):
        kind = helper.np_dtype_to_tensor_dtype(data.dtype)
        if k in constant:
            weights.append(onnx.numpy_helper.from_array(data, name))
        else:
            dims = [f"d{k}{a}" for a in range(data.ndim)] if open_dims else data.shape
            infos.append(helper.make_tensor_value_info(name, kind, dims))
    made = [f"o{k}" for k in range(outputs)]
    nodes = [helper.make_node(op, names, made, name="old", **attributes)]
    outs = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in made]
    for out in outs:
        out.ClearField("type")
    graph = helper.make_graph(nodes, "g", infos, outs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3 if opset < 9 else 8)
    path = tmp_path / "model.bin"
    of.compile(model, path)
    got = of.Session(path).run({i.name: inputs[names.index(i.name)] for i in infos})
    return model, [got[n] for n in made]


def flat_softmax(x, axis):
    rows = x.reshape(math.prod(x.shape[:axis]), -1)
    rows = np.exp(rows - rows.max(1, keepdims=True))
    return (rows / rows.sum(1, keepdims=True)).reshape(x.shape)


def norm_per_element(x, scale, bias, mean, variance):
    return (x - mean) / np.sqrt(variance + np.float32(1e-5)) * scale + bias


def selu(x, alpha, gamma):
    return np.float32(gamma) * np.where(x > 0, x, np.float32(alpha) * np.expm1(x))


def nearest(x, rows, columns):
    return x[:, :, rows][..., columns]


ends = float(np.finfo(np.float32).max)
# operator, opset, inputs, attributes, which inputs are constants, the old meaning
ROWS = [
    # Laid at an axis, at the end, of one size, and of equal shapes.
    ("Add", 6, [X, B], {"broadcast": 1, "axis": 0}, (), lambda x, b: x + b[..., None]),
    ("Mul", 6, [X, X[0, :, 0]], {"broadcast": 1, "axis": 1}, (), lambda x, b: x * b[:, None]),
    ("Sub", 6, [X, X[0]], {"broadcast": 1}, (), lambda x, b: x - b),
    ("Sub", 1, [X, X[0]], {"broadcast": 1, "axis": -2, "consumed_inputs": [0, 0]}, (), lambda x, b: x - b),
    ("Div", 6, [X, X[:1, 0, 0]], {"broadcast": 1, "axis": 0}, (), lambda x, b: x / b),
    ("Pow", 1, [np.abs(X), B], {"broadcast": 1, "axis": 0}, (1,), lambda x, b: x ** b[..., None]),
    ("Add", 6, [X, X], {}, (), lambda x, b: x + b),
    ("And", 6, [X > 0, B > 0], {"broadcast": 1, "axis": 0}, (), lambda x, b: x & b[..., None]),
    ("Greater", 6, [X, B], {"broadcast": 1, "axis": 0}, (), lambda x, b: x > b[..., None]),
    ("Equal", 1, [X.astype(np.int32), B.astype(np.int32)], {"broadcast": 1, "axis": 0}, (),
     lambda x, b: x == b[..., None]),
    ("Gemm", 6, [B, B.T.copy(), B[:, 0].copy()], {"broadcast": 1}, (), lambda a, b, c: a @ b + c),
    ("PRelu", 6, [X, CHANNEL], {}, (1,), lambda x, s: np.where(x < 0, x * s[:, None], x)),
    ("PRelu", 6, [X, CHANNEL[:1]], {}, (), lambda x, s: np.where(x < 0, x * s, x)),
    ("Relu", 1, [X], {"consumed_inputs": [0]}, (), lambda x: np.maximum(x, 0)),
    ("Clip", 6, [SPREAD], {"min": 0.0}, (), lambda x: np.clip(x, 0, ends)),
    ("Clip", 10, [SPREAD], {}, (), lambda x: np.clip(x, -ends, ends)),
    ("Clip", 1, [SPREAD], {"max": 1.0, "consumed_inputs": [0]}, (), lambda x: np.minimum(x, 1)),
    ("Selu", 1, [X], {}, (), lambda x: selu(x, 1.6732, 1.0507)),
    ("Cast", 1, [X], {"to": "INT32"}, (), lambda x: x.astype(np.int32)),
    ("Concat", 1, [X, X], {}, (), lambda x, y: np.concatenate([x, y], 1)),
    ("Reshape", 1, [X], {"shape": [0, -1]}, (), lambda x: x.reshape(2, 12)),
    ("Pad", 1, [X], {"paddings": [0, 1, 0, 0, 0, 2], "value": 3.0}, (),
     lambda x: np.pad(x, [(0, 0), (1, 0), (0, 2)], constant_values=3)),
    ("Pad", 2, [X], {"pads": [0, 1, 0, 0, 0, 2], "mode": "edge"}, (),
     lambda x: np.pad(x, [(0, 0), (1, 0), (0, 2)], mode="edge")),
    ("Tile", 1, [X, np.array(2, np.float32), np.array(1, np.float32)], {}, (1, 2),
     lambda x, n, a: np.tile(x, (1, 2, 1))),
    ("Tile", 1, [X, np.array(2, np.float32), np.array(1, np.float32)], {}, (), lambda x, n, a: np.tile(x, (1, 2, 1))),
    ("Dropout", 6, [X], {"is_test": 1, "ratio": 0.9}, (), lambda x: x),
    ("Upsample", 1, [IMAGE], {"height_scale": 2.0, "width_scale": 3.0}, (),
     lambda x: x.repeat(2, 2).repeat(3, 3)),
    ("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 1.0]}, (), lambda x: x.repeat(2, 2)),
    ("Upsample", 9, [IMAGE, np.array([1, 1, 1, 2], np.float32)], {}, (1,), lambda x, s: x.repeat(2, 3)),
    ("Resize", 10, [IMAGE, np.array([1, 1, 0.6, 0.6], np.float32)], {}, (1,),
     lambda x, s: nearest(x, [0, 2], [0, 2, 4])),
    ("Resize", 10, [IMAGE, np.array([1, 1, 2, 0.6], np.float32)], {}, (1,),
     lambda x, s: nearest(x, [0, 0, 1, 1, 2, 2, 3, 3], [0, 2, 4])),
    ("Resize", 10, [IMAGE, np.array([1, 1, 2, 0.6], np.float32)], {}, (),
     lambda x, s: nearest(x, [0, 0, 1, 1, 2, 2, 3, 3], [0, 2, 4])),
    ("BatchNormalization", 6, [IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL], {"is_test": 1}, (1, 2, 3, 4),
     lambda x, *c: norm_per_element(x, *[v[:, None, None] for v in c])),
    ("BatchNormalization", 1, [IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL], {"consumed_inputs": [0, 0]}, (),
     lambda x, *c: norm_per_element(x, *[v[:, None, None] for v in c])),
    ("BatchNormalization", 9, [IMAGE, CHANNEL, CHANNEL, CHANNEL, CHANNEL], {}, (1, 2, 3, 4),
     lambda x, *c: norm_per_element(x, *[v[:, None, None] for v in c])),
    ("BatchNormalization", 7, [IMAGE, SAMPLE, SAMPLE, SAMPLE, SAMPLE], {"spatial": 0}, (3, 4), norm_per_element),
    ("Slice", 1, [X], {"starts": [1], "ends": [-1], "axes": [2]}, (), lambda x: x[..., 1:-1]),
    ("Slice", 9, [X], {"starts": [0, 1], "ends": [1, 1000]}, (), lambda x: x[0:1, 1:]),
    ("Softmax", 6, [X], {}, (), lambda x: flat_softmax(x, 1)),
    ("Softmax", 11, [X], {"axis": 0}, (), lambda x: flat_softmax(x, 0)),
    ("Softmax", 11, [X], {"axis": -1}, (), lambda x: flat_softmax(x, 2)),
    ("LogSoftmax", 1, [X], {}, (), lambda x: np.log(flat_softmax(x, 1))),
    ("Hardmax", 11, [X], {}, (),
     lambda x: (np.arange(12) == x.reshape(2, -1).argmax(1)[:, None]).astype(np.float32).reshape(x.shape)),
    ("Squeeze", 1, [X[:1]], {"axes": [0]}, (), lambda x: x[0]),
    ("Squeeze", 12, [X[:1]], {}, (), lambda x: x[0]),
    ("Unsqueeze", 1, [X], {"axes": [0, 3]}, (), lambda x: x[None, :, :, None]),
    ("ReduceSum", 1, [X], {"axes": [1], "keepdims": 0}, (), lambda x: x.sum(1)),
    ("ReduceL1", 11, [X], {"axes": [-1]}, (), lambda x: np.abs(x).sum(-1, keepdims=True)),
    ("ReduceMax", 13, [X], {}, (), lambda x: x.max(keepdims=True)),
    ("Scatter", 9, [B, np.array([[1, 0, 2]]), B[:1] * 9], {"axis": 1}, (),
     lambda x, i, u: np.stack([u[0][[1, 0, 2]], x[1]])),
    ("OneHot", 9, [np.array([1, -1, 2]), np.array(3), np.array([0, 5], np.float32)], {}, (1, 2),
     lambda i, d, v: np.array([[0, 5, 0], [0, 0, 0], [0, 0, 5]], np.float32)),
    ("OneHot", 9, [np.array([1, -1, 2]), np.array([3]), np.array([0, 5], np.float32)], {}, (),
     lambda i, d, v: np.array([[0, 5, 0], [0, 0, 0], [0, 0, 5]], np.float32)),
    ("GroupNormalization", 18, [IMAGE[:, :2].repeat(2, 1), CHANNEL[:2], CHANNEL[1:]], {"num_groups": 2}, (1, 2), None),
    ("GroupNormalization", 18, [IMAGE[:, :2].repeat(2, 1), CHANNEL[:2], CHANNEL[1:]], {"num_groups": 2}, (), None),
]  # fmt: skip


def group_norm(x, scale, bias):
    shape, rows = x.shape, x.reshape(x.shape[0], 2, -1).astype(np.float64)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    return (rows * scale[:, None] + bias[:, None]).reshape(shape)


@pytest.mark.parametrize("open_dims", [False, True], ids=["sizes", "symbols"])
@pytest.mark.parametrize("row", ROWS, ids=[f"{k}-{row[0]}-{row[1]}" for k, row in enumerate(ROWS)])
def test_old_meaning(tmp_path: Path, row, open_dims):
    op, opset, inputs, attributes, constant, meaning = row
    _, (got,) = run(tmp_path, op, opset, inputs, attributes, constant=constant, open_dims=open_dims)
    expected = (meaning or group_norm)(*inputs)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)


# Rows that onnx's reference evaluates in the old opset as well.
REFERENCE = [
    ("Slice", 9, [X], {"starts": [1], "ends": [2], "axes": [1]}, 1),
    ("Split", 2, [X], {"axis": 2, "split": [1, 3]}, 2),
    ("Split", 11, [X], {"axis": 2}, 2),
    ("Split", 13, [X], {"axis": 2}, 2),
    ("TopK", 1, [X], {"k": 2}, 2),
    ("TopK", 10, [X, np.array([2])], {"axis": 1}, 2),
    ("Clip", 6, [X], {"min": -0.5, "max": 0.5}, 1),
    ("Pad", 2, [X], {"pads": [0, 1, 0, 0, 0, 2]}, 1),
    ("Dropout", 7, [X], {}, 1),
    ("ReduceMean", 13, [X], {"axes": [1]}, 1),
    ("ReduceLogSumExp", 13, [X], {"axes": [1], "keepdims": 0}, 1),
    ("Unsqueeze", 11, [X], {"axes": [1]}, 1),
    ("ThresholdedRelu", 10, [X], {}, 1),
]


@pytest.mark.parametrize("row", REFERENCE, ids=[f"{row[0]}-{row[1]}" for row in REFERENCE])
def test_reference_of_the_old_opset(tmp_path: Path, row):
    op, opset, inputs, attributes, outputs = row
    model, got = run(tmp_path, op, opset, inputs, attributes, outputs=outputs)
    expected = ReferenceEvaluator(model).run(None, {f"i{k}": v for k, v in enumerate(inputs)})
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def upgraded(op, opset, inputs, attributes, outputs=1):
    """Return the old model and the upgraded one, without lowering: operators for which kernels do not matter here."""
    names = [f"i{k}" for k in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, inputs, strict=True)
    ]
    outs = [helper.make_tensor_value_info(f"o{k}", TensorProto.FLOAT, None) for k in range(outputs)]
    node = helper.make_node(op, names, [o.name for o in outs], name="old", **attributes)
    graph = helper.make_graph([node], "g", infos, outs)
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    model = ir.from_proto(old)
    upgrade_opset.call(model)
    return old, ir.to_proto(model)


REGIONS = [IMAGE, np.array([[0.3, 0.2, 3.1, 2.7]], np.float32), np.array([1])]


@pytest.mark.parametrize(
    "row",
    [
        ("DFT", 17, [X[..., :1]], {"axis": 1}),
        ("DFT", 17, [X[..., :2]], {"inverse": 1}),
    ],
    ids=lambda row: f"{row[0]}-{len(row[3])}",
)
def test_reference_of_both_opsets(row):
    old, new = upgraded(*row)
    feeds = {f"i{k}": v for k, v in enumerate(row[2])}
    (expected,), (got,) = (ReferenceEvaluator(m).run(None, feeds) for m in (old, new))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("row", "written"),
    [
        (("GlobalLpPool", 1, [IMAGE], {"p": 3.0}), {"p": 3}),
        (("LpPool", 1, [IMAGE], {"p": 2.0, "kernel_shape": [2, 2]}), {"p": 2, "kernel_shape": [2, 2]}),
        (("GRU", 1, [X, X[:1], X[:1]], {"hidden_size": 1}), {"direction": b"forward", "hidden_size": 1}),
        (("LSTM", 1, [X, X[:1], X[:1]], {"hidden_size": 1, "output_sequence": 1}), {"hidden_size": 1}),
        (("GridSample", 16, [IMAGE, IMAGE[..., :2]], {"mode": "bicubic"}), {"mode": b"cubic"}),
        (("GridSample", 16, [IMAGE, IMAGE[..., :2]], {}), {"mode": b"linear"}),
        (("GridSample", 16, [IMAGE, IMAGE[..., :2]], {"mode": "nearest"}), {"mode": b"nearest"}),
        (("RoiAlign", 10, REGIONS, {}), {"coordinate_transformation_mode": b"output_half_pixel"}),
        (("Split", 1, [X], {}, 2), {"axis": 0, "num_outputs": 2}),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else "",
)
def test_attributes_of_the_new_form(row, written):
    _, new = upgraded(*row)
    node = new.graph.node[-1]
    assert {a.name: helper.get_attribute_value(a) for a in node.attribute} == written


def test_mask_of_an_old_dropout(tmp_path: Path):
    _, (y, mask) = run(tmp_path, "Dropout", 7, [X], {}, outputs=2)
    np.testing.assert_array_equal(y, X)
    assert mask.dtype == np.float32
    np.testing.assert_array_equal(mask, np.ones_like(X))


REFUSED = [
    ("BatchNormalization", 9, [IMAGE] + [CHANNEL] * 4, {}, 5, "saved_mean and saved_var"),
    ("BatchNormalization", 7, [IMAGE] + [SAMPLE] * 4, {"spatial": 0}, 3, "spatial=0 in training mode"),
    ("Cast", 1, [X], {"to": "DECIMAL"}, 1, "unknown type 'DECIMAL'"),
]


@pytest.mark.parametrize("row", REFUSED, ids=[row[-1] for row in REFUSED])
def test_what_has_no_equal(tmp_path: Path, row):
    op, opset, inputs, attributes, outputs, words = row
    with pytest.raises(UnsupportedError, match=rf"node 'old' \({op}\)(.|\n)*{words}"):
        run(tmp_path, op, opset, inputs, attributes, outputs=outputs)


def test_every_change_of_an_operator_has_a_rule_or_a_reason():
    history = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain:
            history[schema.name].append(schema)

    def form(schema):
        attributes = {k: (a.required, str(a.default_value), str(a.type)) for k, a in schema.attributes.items()}
        return [str(i.option) for i in schema.inputs], [str(o.option) for o in schema.outputs], attributes

    changed = set()
    for name, versions in history.items():
        versions.sort(key=lambda s: s.since_version)
        for old, new in pairwise(versions):
            if new.since_version <= TARGET and (new.deprecated or form(old) != form(new)):
                changed.add((name, new.since_version))
    assert changed - RULES.keys() - NEUTRAL.keys() == set()
    assert NEUTRAL.keys() <= changed, "a reason for a change that does not exist"
    assert not NEUTRAL.keys() & RULES.keys()
    # These keep their form and change their meaning.
    assert RULES.keys() - changed == {("Dropout", 10), ("OneHot", 11), ("PRelu", 7)}
