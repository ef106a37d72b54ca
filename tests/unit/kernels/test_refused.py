"""What kernels refuse, and with which words."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from opforge.bin import format as bin_format
from opforge.bin.session import Session
from opforge.errors import OpforgeError
from tests.unit.kernels.graphs import DTYPES, Net, c16, formula
from tests.unit.kernels.report import FAMILIES


def image(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def conv(net: Net, x: int, w: int, **attributes):
    base = {"algorithm": "direct", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "channels_in": 16, "channels_out": 16}
    return net.plain(net.node("Conv", [x, w], layout=c16(), **base | attributes))


def test_packing_is_checked():
    net = Net()
    x = net.blocked(net.feed(image(1, 16, 5, 5)), 1, 1, 1, 1)
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "deconv16"))
    with pytest.raises(OpforgeError, match="packed as conv16"):
        net.run(out)


def test_nothing_is_made_as_large_as_an_attribute_says():
    """A bias of 2^40 zeros, for weights of 2304 numbers."""
    net = Net()
    x = net.blocked(net.feed(image(1, 16, 5, 5)), 1, 1, 1, 1)
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "conv16"), channels_out=1 << 40)
    with pytest.raises(OpforgeError, match="channels_out=1099511627776 is not that of constant weights"):
        net.run(out)


def test_matmul_weights_are_checked():
    net = Net()
    out = net.node("MatMul", [net.feed(image(2, 8)), net.constant(image(8, 4), "matmul16")], K=8, N=5)
    with pytest.raises(OpforgeError, match=r"\[K=8, N=5\] packed as matmul16"):
        net.run(out)


def test_halo_must_reach():
    net = Net()
    x = net.blocked(net.feed(image(1, 16, 5, 5)))
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "conv16"))
    with pytest.raises(OpforgeError, match="halo of X is smaller"):
        net.run(out)


def test_channels_must_fit():
    net = Net()
    x = net.blocked(net.feed(image(1, 8, 5, 5)), 1, 1, 1, 1)
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "conv16"))
    with pytest.raises(OpforgeError, match=r"\[N, 16, H, W\]"):
        net.run(out)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"activation": "softsign"}, "unknown activation"),
        ({"algorithm": "fft"}, "unknown algorithm"),
        ({"strides": [0, 1]}, "out of range"),
        ({"pads": [1, 1, 1, -1]}, "out of range"),
        ({"group": 0}, "whole blocks of 16"),
        ({"group": 2}, "whole blocks of 16"),
        ({"group": 2**40}, "whole blocks of 16"),
        ({"input_layout": "nhwc"}, "not nhwc of the algorithm first"),
        ({"input_layout": "nchwc"}, "not nhwc of the algorithm first"),
        ({"tile_blocks": 5}, "tile_blocks, strip_kb or winograd_tiles out of range"),
        ({"tile_blocks": -1}, "tile_blocks, strip_kb or winograd_tiles out of range"),
        ({"strip_kb": 2**40}, "tile_blocks, strip_kb or winograd_tiles out of range"),
        ({"winograd_tiles": 2**40}, "tile_blocks, strip_kb or winograd_tiles out of range"),
        ({"winograd_tiles": -(2**63)}, "tile_blocks, strip_kb or winograd_tiles out of range"),
        ({"channels_total": 8}, "cut a block"),
        ({"channels_total": 48, "channel_offset": 8}, "cut a block"),
        ({"channels_total": 48, "channel_offset": 48}, "cut a block"),
        ({"channels_total": 48, "channel_offset": -16}, "cut a block"),
        ({"channels_total": 2**62, "channel_offset": 2**62 - 16}, "cut a block"),
    ],
)
def test_attributes_are_checked(attributes, words):
    net = Net()
    x = net.blocked(net.feed(image(1, 16, 5, 5)), 1, 1, 1, 1)
    out = conv(net, x, net.constant(image(16, 16, 3, 3), "conv16"), **attributes)
    with pytest.raises(OpforgeError, match=words):
        net.run(out)


def test_kept_channels_must_lie_as_the_output():
    for shape, halo in (((1, 32, 5, 5), 0), ((1, 48, 5, 5), 1), ((1, 48, 4, 5), 0)):
        net = Net()
        x = net.blocked(net.feed(image(1, 16, 5, 5)), 1, 1, 1, 1)
        kept = net.blocked(net.feed(image(*shape)), halo, halo, halo, halo)
        inputs = [x, net.constant(image(16, 16, 3, 3), "conv16"), -1, kept]
        attributes = {"kernel_shape": [3, 3], "pads": [1] * 4, "channels_in": 16, "channels_out": 16}
        out = net.node("Conv", inputs, layout=c16(), channels_total=48, channel_offset=16, **attributes)
        with pytest.raises(OpforgeError, match="not laid out as the output"):
            net.run(net.plain(out))


@pytest.mark.parametrize(
    ("op", "attributes", "words"),
    [
        ("DepthToSpace", {"blocksize": 3}, "blocksize squared"),
        ("DepthToSpace", {"blocksize": 0}, "blocksize squared"),
        ("DepthToSpace", {"blocksize": 2**40}, "blocksize squared"),
        ("ShuffleChannels", {"groups": 5}, "divisible by groups"),
        ("ShuffleChannels", {}, "divisible by groups"),
        ("Resize", {"channels_in": 32, "channels_total": 32}, "does not have channels_in"),
        ("Resize", {"channels_in": 0, "channels_total": 32}, "cut a block"),
    ],
)
def test_moves_of_channels_are_checked(op, attributes, words):
    net = Net()
    out = net.node(op, [net.blocked(net.feed(image(1, 16, 5, 5)))], layout=c16(), **attributes)
    with pytest.raises(OpforgeError, match=words):
        net.run(net.plain(out))


def test_epilogue_operand_must_broadcast():
    blob = formula(2, lambda b, x, y: b.op("add", x, y))
    net = Net()
    inputs = [net.feed(image(2, 8)), net.constant(image(8, 4), "matmul16"), -1, net.feed(image(3))]
    out = net.node("MatMul", inputs, K=8, N=4, epilogue=blob)
    with pytest.raises(OpforgeError, match="has 3 where the output has 4"):
        net.run(out)


def test_formulas_of_images_give_images():
    """Without this the formula ran as one of plain tensors, with the scratch of none."""
    net = Net()
    x = net.blocked(net.feed(image(1, 3, 2, 2)), 1, 1, 1, 1)
    blob = formula(2, lambda b, x, y: b.op("add", x, y))
    with pytest.raises(OpforgeError, match="have one c16 layout"):
        net.run(net.node("Formula", [x, net.feed(image(1, 3, 1, 1))], bytecode=blob))


def test_epilogue_operand_must_be_there():
    blob = formula(2, lambda b, x, y: b.op("add", x, y))
    net = Net()
    out = net.node("MatMul", [net.feed(image(2, 8)), net.constant(image(8, 4), "matmul16")], K=8, N=4, epilogue=blob)
    with pytest.raises(OpforgeError, match="reads 1 inputs, the node has 0"):
        net.run(out)


def test_attention_shapes_must_fit():
    net = Net()
    q, k, v = (net.feed(image(1, 2, 4, d)) for d in (8, 6, 8))
    with pytest.raises(OpforgeError, match="do not fit the node's heads"):
        net.run(net.onnx("Attention", 23, [q, k, v]))


@pytest.mark.parametrize(
    "attributes",
    [
        {"q_offset": 2**63 - 8},  # the end of the heads would overflow
        {"k_offset": 2**62},
        {"v_offset": -8},
        {"num_heads": 2**32, "head_size": 2**32},  # 0 columns, modulo 2^64
        {"kv_num_heads": 0},
    ],
)
def test_attention_heads_and_offsets_are_checked(attributes):
    net = Net()
    inputs = [net.feed(image(1, 1, 8)) for _ in range(3)]
    layouts = {f"{k}_layout": "bshd" for k in "qkvo"}
    out = net.node("Attention", inputs, **{"num_heads": 1, "head_size": 8} | layouts | attributes)
    with pytest.raises(OpforgeError, match="head_size or an offset out of range"):
        net.run(out)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_sums_of_packed_integers_are_constants(length):
    """One sum is needed here, which a shape that is not known yet must not pass for."""
    sums = np.ones(length, np.int32)
    net = Net()
    inputs = [net.feed(np.ones((1, 4), np.uint8)), net.constant(np.ones((4, 1), np.int8), "integer16"), net.feed(sums)]
    with pytest.raises(OpforgeError, match="sums of B's columns are not a constant"):
        net.run(net.node("IntegerMatMul", inputs, dtypes=[6]))
    net = Net()
    weights = net.constant(np.ones((1, 4, 1, 1), np.int8), "integer16")
    inputs = [net.feed(np.ones((1, 4, 2, 2), np.uint8)), weights, net.feed(sums)]
    with pytest.raises(OpforgeError, match="sums of W are not a constant"):
        net.run(net.node("IntegerConv", inputs, dtypes=[6]))


@pytest.mark.parametrize("which", [6, 7])
def test_row_scales_of_a_product_with_a_vector_are_refused(which):
    """The result [2, 500] of [2, 500, 4] and [4] has no matrices; a scale for each of 2 rows was read 500 times."""
    net = Net()
    scale, zero = np.float32([1]), np.uint8([0])
    arrays = [np.ones((2, 500, 4), np.uint8), scale, zero, np.ones(4, np.uint8), scale, zero, scale, zero]
    arrays[which] = np.repeat(arrays[which], 2)
    with pytest.raises(OpforgeError, match="scales or zero points of a quantised MatMul do not fit"):
        net.run(net.onnx("QLinearMatMul", 21, [net.feed(a) for a in arrays], dtypes=[2]))


def test_lengths_beyond_32_bits_are_refused():
    net = Net()
    x = net.feed(np.zeros((0, 2**31 + 8), np.uint8))
    out = net.onnx("Resize", 19, [x, -1, -1, net.constant(np.array([0, 4], np.int64))], dtypes=[2])
    with pytest.raises(OpforgeError, match="do not fit together"):
        net.run(out)
    net = Net()
    with pytest.raises(OpforgeError, match="impossible size"):
        net.run(net.plain(net.blocked(net.feed(image(0, 16, 1, 2**30)))))


def test_blocks_of_col2im_must_fit():
    net = Net()
    sizes = [net.constant(np.array(v, np.int64)) for v in ([2**22, 2**22, 2**31 - 1], [1, 1, 1])]
    with pytest.raises(OpforgeError, match="of Col2Im do not fit"):
        net.run(net.onnx("Col2Im", 18, [net.feed(image(0, 1, 4)), *sizes]))


def test_identity_matrices_have_types_of_onnx():
    net = Net()
    with pytest.raises(OpforgeError, match="no kernel for this dtype"):
        net.run(net.onnx("EyeLike", 22, [net.feed(image(2, 2))], dtypes=[17]))


def test_resize_of_nothing():
    net = Net()
    scales = net.constant(np.array([1, 1, -1, 2], np.float32))
    with pytest.raises(OpforgeError, match="do not fit together"):
        net.run(net.onnx("Resize", 19, [net.feed(image(1, 1, 4, 4)), -1, scales]))


def test_more_than_there_is():
    net = Net()
    inputs = [net.feed(image(2, 3)), net.constant(np.array([4], np.int64))]
    with pytest.raises(OpforgeError, match="K is 4, expected 0 to 3"):
        net.run(net.onnx("TopK", 11, inputs, dtypes=[1, 7])[0])


def test_outputs_of_another_dtype_are_refused(tmp_path):
    """What a file says about an output decides about its memory, so it must be what the kernel writes."""
    accepted, seen = [], set()
    for name, net, out, _, _ in (case for family in FAMILIES for case in family(np.random.default_rng(7))):
        program = net.program
        program.graphs[0].outputs = [out]
        shapes = {key: list(value.shape) for key, value in net.feeds.items()}
        for node in program.graphs[0].nodes:
            for slot, index in enumerate(node.outputs):
                value = program.values[index]
                key = (node.domain, node.op, slot, value.dtype, value.layout.kind)
                if key in seen or node.op == "Cast":
                    continue
                seen.add(key)
                right, value.dtype = value.dtype, DTYPES[np.dtype(np.uint8)]
                bin_format.write(program, tmp_path / "wrong.bin")
                value.dtype = right
                with contextlib.suppress(OpforgeError):
                    Session(tmp_path / "wrong.bin").prepare(shapes)  # plans, runs nothing
                    accepted.append((*key, name))
    assert len(seen) > 50
    assert not accepted


def test_operands_of_another_dtype_are_refused():
    net = Net()
    a, b = net.feed(image(2, 3)), net.feed(np.ones((3, 2), np.uint8))
    with pytest.raises(OpforgeError, match="dtypes of Gemm's operands do not fit"):
        net.run(net.onnx("Gemm", 13, [a, b]))
    net = Net()
    out = net.onnx("ReduceSum", 13, [net.feed(image(2, 3)), net.constant(np.array([0], np.uint8))])
    with pytest.raises(OpforgeError, match="axes"):
        net.run(out)
