"""Convolutions: algorithms, layouts, halos, packings, epilogues on blocked values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.graphs import compiled, model, node, ops, same

RNG = np.random.default_rng(6)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _conv(program):
    return next(n for n in program.graphs[0].nodes if n.op == "Conv")


@pytest.mark.parametrize(
    ("cin", "cout", "group", "kernel", "strides", "pads", "dilations", "algorithm"),
    [
        (3, 16, 1, (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), "first"),
        (1, 24, 1, (5, 3), (1, 2), (2, 0, 1, 2), (1, 1), "first"),
        (16, 24, 1, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "winograd"),
        (17, 40, 1, (3, 3), (1, 1), (0, 0, 0, 0), (1, 1), "winograd"),
        (20, 33, 1, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), "direct"),
        (20, 33, 1, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), "direct"),
        (12, 20, 1, (3, 3), (2, 1), (1, 1, 1, 1), (1, 1), "direct"),
        (12, 20, 1, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2), "direct"),
        (40, 40, 40, (5, 5), (2, 1), (2, 2, 2, 2), (1, 1), "depthwise"),
        (24, 24, 24, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "depthwise"),
    ],
)
def test_algorithms(cin, cout, group, kernel, strides, pads, dilations, algorithm):
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": group}
    nodes = [node("Conv", "x w b", "c", **attributes), node("Relu", "c", "y")]
    weights = {"w": _random(cout, cin // group, *kernel) * 0.3, "b": _random(cout)}
    proto = model(nodes, {"x": ["N", cin, "H", "W"]}, weights)
    program, report = same(proto, {"x": _random(2, cin, 13, 18)}, rtol=1e-4, atol=1e-4)
    assert report.algorithms == {algorithm: 1}
    assert ops(program) == (["Conv", "Reorder"] if algorithm == "first" else ["Reorder", "Conv", "Reorder"])


@pytest.mark.parametrize("size", [12, 13, 14, 15, 16])
def test_winograd_halo_of_known_sizes(size):
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    proto = model(
        [node("Conv", "x w", "y", **attributes)], {"x": [1, 16, size, size]}, {"w": _random(16, 16, 3, 3) * 0.1}
    )
    program, _ = same(proto, {"x": _random(1, 16, size, size)}, rtol=1e-4, atol=1e-4)
    frame = 4 * -(-size // 4) + 2
    halo = program.values[_conv(program).inputs[0]].layout.halo
    assert halo == (1, 1, frame - 1 - size, frame - 1 - size)


@pytest.mark.parametrize(
    "attributes",
    [{"group": 2, "dilations": [300, 1], "pads": [300, 0, 300, 0]}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}],
)
def test_what_blocks_do_not_take_stays_plain(attributes):
    group = attributes.get("group", 1)
    proto = model(
        [node("Conv", "x w", "y", kernel_shape=[3, 3], **attributes)],
        {"x": [1, 8, "H", 9]},
        {"w": _random(4, 8 // group, 3, 3)},
    )
    program, report = same(proto, {"x": _random(1, 8, 9, 9)}, atol=1e-4)
    assert ops(program) == ["Conv"]
    assert report.layouts == {"plain": 2}


def test_same_padding_is_made_explicit():
    attributes = {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}
    proto = model([node("Conv", "x w", "y", **attributes)], {"x": [1, 8, "H", "W"]}, {"w": _random(4, 8, 3, 3)})
    program, _ = same(proto, {"x": _random(1, 8, 7, 9)}, atol=1e-4)
    assert _conv(program).attributes["pads"] == [1, 1, 1, 1]


def test_batch_norm_scale_and_shift_go_into_the_weights():
    constants = {"w": _random(24, 16, 1, 1), "m": _random(24), "v": np.abs(_random(24)) + 0.5, "g": _random(24)}
    constants |= {"b": _random(24), "two": np.float32(2), "bias": _random(1, 24, 1, 1)}
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[1, 1]),
        node("BatchNormalization", "c g b m v", "n"),
        node("Mul", "two n", "d"),
        node("Sub", "bias d", "y"),
    ]
    proto = model(nodes, {"x": [1, 16, "H", "W"]}, constants)
    program, _ = same(proto, {"x": _random(1, 16, 6, 5)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == ["Reorder", "Conv", "Reorder"]
    assert _conv(program).attributes.get("epilogue") is None


def test_squeeze_excite_stays_in_blocks():
    constants = {"w": _random(40, 16, 1, 1), "a": _random(10, 40, 1, 1), "b": _random(40, 10, 1, 1)}
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[1, 1]),
        node("HardSwish", "c", "h"),
        node("GlobalAveragePool", "h", "p"),
        node("Conv", "p a", "s"),
        node("Relu", "s", "r"),
        node("Conv", "r b", "e"),
        node("HardSigmoid", "e", "g"),
        node("Mul", "h g", "m"),
        node("Add", "m h", "y"),
    ]
    proto = model(nodes, {"x": [2, 16, "H", "W"]}, constants)
    program, report = same(proto, {"x": _random(2, 16, 6, 5)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == ["Reorder", "Conv", "GlobalAveragePool", "Conv", "Conv", "Formula", "Reorder"]
    assert report.fused["Conv + hardsigmoid"] == 1


def test_residual_and_epilogue_share_a_frame():
    constants = {"w": _random(16, 16, 3, 3) * 0.2, "v": _random(16, 16, 1, 1)}
    nodes = [
        node("Conv", "x v", "a", kernel_shape=[1, 1]),
        node("Conv", "a w", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("Add", "r a", "s"),
        node("Tanh", "s", "t"),
        node("Conv", "t w", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    proto = model(nodes, {"x": [1, 16, "H", "W"]}, constants)
    program, report = same(proto, {"x": _random(1, 16, 14, 13)}, rtol=1e-3, atol=1e-3)
    assert report.fused == {"Conv + relu + residual + Tanh": 1}
    halos = {v.layout.halo for v in program.values if v.layout.kind == "c16" and v.name in ("a", "t")}
    assert halos == {(1, 1, 4, 4)}


@pytest.mark.parametrize("row", ["Add", "Sum"])
def test_activation_of_a_sum_is_done_in_registers(row):
    constants = {"w": _random(16, 16, 3, 3) * 0.2, "v": _random(16, 16, 1, 1)}
    nodes = [
        node("Conv", "x v", "a", kernel_shape=[1, 1]),
        node("Conv", "a w", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node(row, "a c", "s"),
        node("Relu", "s", "r"),
        node("Neg", "r", "y"),
    ]
    proto = model(nodes, {"x": [1, 16, "H", "W"]}, constants)
    program, report = same(proto, {"x": _random(1, 16, 9, 13)}, rtol=1e-3, atol=1e-3)
    assert report.fused == {"Conv + relu + residual + Neg": 1}
    last = [n for n in program.graphs[0].nodes if n.op == "Conv"][-1]
    assert last.attributes["activation_on_sum"] == 1


def test_affine_hard_swish_is_one_activation():
    constants = {"w": _random(16, 16, 1, 1), "s": np.float32([1.75]), "t": np.float32([-0.25])}
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[1, 1]),
        node("HardSwish", "c", "h"),
        node("Mul", "s h", "m"),
        node("Add", "m t", "y"),
    ]
    program, _ = same(
        model(nodes, {"x": [1, 16, "H", "W"]}, constants), {"x": _random(1, 16, 6, 5)}, rtol=1e-4, atol=1e-4
    )
    a = _conv(program).attributes
    assert a["activation"] == "affine_hardswish"
    assert a["s"] == pytest.approx(1 / (6 * 1.75))
    assert a["t"] == pytest.approx(-0.25)


def test_neighbours_follow_into_blocks():
    constants = {"w": _random(24, 8, 1, 1), "scales": np.float32([1, 1, 2, 3]), "d": _random(48, 6, 2, 2)}
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[1, 1]),
        node("MaxPool", "c", "p", kernel_shape=[2, 2], pads=[1, 0, 0, 1]),
        node(
            "Resize",
            "p - scales",
            "r",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        node("Resize", "p - scales", "q", mode="nearest"),
        node("Concat", "r q", "k", axis=1),
        node("ConvTranspose", "k d", "t", strides=[2, 2]),
        node("AveragePool", "t", "y", kernel_shape=[3, 3], strides=[2, 2]),
    ]
    proto = model(nodes, {"x": [1, 8, "H", "W"]}, constants)
    program, _ = same(proto, {"x": _random(1, 8, 6, 5)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == "Reorder Conv Pool Resize Resize ConcatChannels ConvTranspose Pool Reorder".split()


@pytest.mark.parametrize("out", [1, 3])
def test_deconvolution_of_few_channels_is_plain(out):
    nodes = [node("ConvTranspose", "x w b", "c", strides=[2, 2]), node("Sigmoid", "c", "y")]
    constants = {"w": _random(24, out, 2, 2), "b": _random(out)}
    proto = model(nodes, {"x": ["N", 24, "H", "W"]}, constants)
    program, report = same(proto, {"x": _random(2, 24, 5, 6)}, rtol=1e-4, atol=1e-5)
    assert ops(program) == ["Reorder", "ConvTranspose"]
    assert report.fused == {"ConvTranspose + Sigmoid": 1}


def test_operand_with_its_own_plane_is_plain():
    constants = {"w": _random(16, 16, 1, 1)}
    nodes = [node("Conv", "x w", "c", kernel_shape=[1, 1]), node("Add", "c p", "y")]
    proto = model(nodes, {"x": [1, 16, 6, 5], "p": [1, 1, 6, 5]}, constants)
    program, _ = same(proto, {"x": _random(1, 16, 6, 5), "p": _random(1, 1, 6, 5)}, atol=1e-4)
    assert ops(program) == ["Reorder", "Conv", "Reorder", "Formula"]


def test_blocked_value_that_is_output_and_read():
    constants = {"w": _random(16, 16, 1, 1)}
    nodes = [node("Conv", "x w", "y", kernel_shape=[1, 1]), node("Conv", "y w", "z", kernel_shape=[1, 1])]
    proto = model(nodes, {"x": [1, 16, 6, 5]}, constants, outputs="y z")
    program, _ = same(proto, {"x": _random(1, 16, 6, 5)}, rtol=1e-4, atol=1e-4)
    outputs = [program.values[i] for i in program.graphs[0].outputs]
    assert [(v.name, v.layout.kind) for v in outputs] == [("y", "plain"), ("z", "plain")]


def test_unknown_rank_is_left_alone():
    proto = model([node("Conv", "x w", "y", kernel_shape=[1, 1])], {"x": None}, {"w": _random(4, 4, 1, 1)})
    program, _ = compiled(proto)
    assert ops(program) == ["Conv"]
    assert program.graphs[0].nodes[0].domain == ""
