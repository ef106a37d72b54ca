"""Groups of channels, their shuffles, and concatenations that are written in place."""

from __future__ import annotations

import numpy as np
import pytest

from opforge.bin import compiler
from opforge.bin import format as bin_format
from opforge.bin.session import Session
from tests.unit.compiler.graphs import model, node, ops, same

RNG = np.random.default_rng(8)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("channels", "out", "group", "joined"),
    [(64, 64, 2, 2), (64, 64, 16, 4), (24, 48, 3, 1), (64, 128, 4, 4), (20, 20, 2, 1), (96, 48, 3, 3)],
)
@pytest.mark.parametrize("strides", [[1, 1], [2, 2]])
def test_grouped_convolutions(channels, out, group, joined, strides):
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": group, "strides": strides}
    nodes = [
        node("Conv", "x w b", "c", **attributes),
        node("Tanh", "c", "t"),
        node("Mul", "t scale", "y"),
    ]
    constants = {"w": _random(out, channels // group, 3, 3) * 0.2, "b": _random(out), "scale": _random(1, out, 1, 1)}
    proto = model(nodes, {"x": ["N", channels, "H", "W"]}, constants)
    program, report = same(proto, {"x": _random(2, channels, 9, 11)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == ["Reorder", "Conv", "Reorder"]
    conv = next(n for n in program.graphs[0].nodes if n.op == "Conv")
    assert conv.attributes.get("group", 1) == joined
    assert report.fused == {"Conv + Tanh + Mul": 1}


def test_many_narrow_groups_stay_plain():
    proto = model(
        [node("Conv", "x w", "y", kernel_shape=[3, 3], group=34)], {"x": [1, 34, 6, 6]}, {"w": _random(68, 1, 3, 3)}
    )
    program, _ = same(proto, {"x": _random(1, 34, 6, 6)}, atol=1e-4)
    assert ops(program) == ["Conv"]


@pytest.mark.parametrize(("channels", "groups"), [(48, 3), (40, 4), (24, 2)])
def test_shuffle_is_one_move(channels, groups):
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[1, 1]),
        node("Reshape", "c split", "s"),
        node("Transpose", "s", "t", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "t join", "j"),
        node("Conv", "j v", "y", kernel_shape=[1, 1]),
    ]
    constants = {
        "w": _random(channels, 8, 1, 1),
        "v": _random(8, channels, 1, 1),
        "split": np.array([2, groups, channels // groups, 5, 7]),
        "join": np.array([2, channels, 5, 7]),
    }
    proto = model(nodes, {"x": [2, 8, 5, 7]}, constants)
    program, _ = same(proto, {"x": _random(2, 8, 5, 7)}, rtol=1e-4, atol=1e-4)
    assert ops(program) == ["Reorder", "Conv", "ShuffleChannels", "Conv", "Reorder"]


def _fire(out, last):
    """Squeeze, two expansions, concatenation, and what reads it."""
    nodes = [
        node("Conv", "x s", "squeezed", kernel_shape=[1, 1]),
        node("Conv", "squeezed a ab", "left", kernel_shape=[1, 1]),
        node("Relu", "left", "l"),
        node("Conv", "squeezed b", "right", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "right", "r"),
        node("Concat", "l r", "joined", axis=1),
        *last,
    ]
    constants = {"s": _random(16, 8, 1, 1), "a": _random(out, 16, 1, 1), "ab": _random(out)}
    constants |= {"b": _random(24, 16, 3, 3) * 0.2, "z": _random(8, out + 24, 3, 3) * 0.1}
    return model(nodes, {"x": ["N", 8, "H", "W"]}, constants)


def test_concatenation_is_written_in_place():
    proto = _fire(48, [node("Conv", "joined z", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])])
    program, report = same(proto, {"x": _random(2, 8, 13, 14)}, rtol=1e-3, atol=1e-3)
    assert ops(program) == ["Reorder", "Conv", "Conv", "Conv", "Conv", "Reorder"]
    assert report.fused == {"Conv + relu": 2}
    parts = [n.attributes for n in program.graphs[0].nodes if "channels_total" in n.attributes]
    assert [(a["channel_offset"], a["channels_total"]) for a in parts] == [(0, 72), (48, 72)]


@pytest.mark.parametrize(
    ("out", "last"),
    [
        (40, [node("Relu", "joined", "y")]),  # the second part would begin within a block
        (48, [node("Neg", "l", "n"), node("ReduceMax", "n", "m"), node("Mul", "joined m", "y")]),  # read elsewhere
    ],
)
def test_other_concatenations_copy(out, last):
    program, _ = same(_fire(out, last), {"x": _random(1, 8, 13, 14)}, rtol=1e-3, atol=1e-3)
    assert "ConcatChannels" in ops(program)


def test_resize_writes_into_a_concatenation():
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[1, 1]),
        node("MaxPool", "c", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "p v", "d", kernel_shape=[1, 1]),
        node(
            "Resize",
            "d - scales",
            "up",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
        node("Conv", "x u", "e", kernel_shape=[1, 1]),
        node("Concat", "up e", "joined", axis=1),
        node("Conv", "joined z", "y", kernel_shape=[1, 1]),
    ]
    constants = {"w": _random(16, 8, 1, 1), "v": _random(32, 16, 1, 1), "u": _random(20, 8, 1, 1)}
    constants |= {"z": _random(8, 52, 1, 1), "scales": np.array([1, 1, 2, 2], np.float32)}
    proto = model(nodes, {"x": [2, 8, 6, 8]}, constants)
    program, _ = same(proto, {"x": _random(2, 8, 6, 8)}, rtol=1e-4, atol=1e-4)
    assert "ConcatChannels" not in ops(program)


def test_parts_share_one_buffer(tmp_path):
    proto = _fire(48, [node("Conv", "joined z", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])])
    program, _ = compiler.compile_program(proto)
    path = tmp_path / "fire.bin"
    bin_format.write(program, path)
    session = Session(path, threads=1)
    x = {"x": _random(3, 8, 20, 21)}
    first = session.run(x)["y"]
    parts = [n.outputs[0] for n in program.graphs[0].nodes if "channels_total" in n.attributes]
    places = {entry.offset for entry in session.plan[1] if entry.kind == 0 and entry.id in parts}
    assert len(places) == 1
    assert np.array_equal(first, Session(path, threads=2).run(x)["y"])
