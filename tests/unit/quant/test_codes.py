"""Products with weights that stay codes of 4 and 8 bits: the bits of the product with dequantised f32 weights."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from opforge.bin import program as programs
from opforge.errors import MissingOperatorError, OpforgeError
from tests.unit.compiler.graphs import compiled, model, native, node, ops
from tests.unit.compiler.program_reference import Runner

RNG = np.random.default_rng(5)
TYPES = {"u4": ml_dtypes.uint4, "i4": ml_dtypes.int4, "u8": np.uint8, "i8": np.int8}
LEAST = {"u4": 0, "i4": -8, "u8": 0, "i8": -128}
RANGE = {"u4": 16, "i4": 16, "u8": 256, "i8": 256}


def _codes(kind: str, *shape: int) -> np.ndarray:
    return (RNG.integers(0, RANGE[kind], shape) + LEAST[kind]).astype(np.int16)


def _case(kind: str, k: int, n: int, block: int, zeros: bool):
    """Constants of a DequantizeLinear [K, N] and the same weights in f32. block: 0 = one scale, -1 = per column."""
    codes = _codes(kind, k, n)
    groups = (1, 1) if block == 0 else (1, n) if block < 0 else (-(-k // block), n)
    scale = RNG.uniform(0.01, 0.1, groups).astype(np.float32)
    zero = _codes(kind, *groups) if zeros else np.zeros(groups, np.int16)
    rows = block if block > 0 else k
    wide = (codes - np.repeat(zero, rows, axis=0)[:k]).astype(np.float32) * np.repeat(scale, rows, axis=0)[:k]
    shape = () if block == 0 else (n,) if block < 0 else groups
    constants = {"c": codes.astype(TYPES[kind]), "s": scale.reshape(shape)}
    if zeros:
        constants["z"] = zero.reshape(shape).astype(TYPES[kind])
    return constants, wide


def _nodes(block: int, zeros: bool, turned: bool = False):
    given = "c s z" if zeros else "c s"
    axis = {0: {}, -1: {"axis": 0 if turned else 1}}.get(block, {"axis": 1 if turned else 0, "block_size": block})
    dequantize = node("DequantizeLinear", given, "w", **axis)
    return [dequantize, node("Gemm", "x w b", "g", transB=int(turned)), node("Relu", "g", "y")]


@pytest.mark.parametrize(("kind", "zeros"), list(product(TYPES, (False, True))))
def test_bits_of_the_dequantised_product(kind, zeros):
    for (k, n), block, turned in product(((200, 70), (72, 129), (64, 64)), (0, -1, 32), (False, True)):
        constants, wide = _case(kind, k, n, block, zeros)
        if turned:
            constants = {name: v.T if v.ndim == 2 else v for name, v in constants.items()}
        bias = RNG.standard_normal(n).astype(np.float32)
        coded, _ = compiled(model(_nodes(block, zeros, turned), {"x": ["M", k]}, {**constants, "b": bias}))
        plain, _ = compiled(model(_nodes(block, zeros)[1:], {"x": ["M", k]}, {"w": wide, "b": bias}))
        assert ops(coded) == ["DequantizeMatMul"]
        assert ops(plain) == ["MatMul"]
        for m in (1, 2, 7, 33):
            x = RNG.standard_normal((m, k)).astype(np.float32)
            got = native(coded, {"x": x})["y"]
            assert np.array_equal(got, native(plain, {"x": x})["y"])
            exact = np.maximum(x.astype(np.float64) @ wide.astype(np.float64) + bias, 0)
            bound = (k + 2) * 2.0**-24 * (np.abs(x) @ np.abs(wide) + np.abs(bias))
            assert (np.abs(got - exact) <= bound).all()
    np.testing.assert_allclose(Runner(coded).run({"x": x})["y"], exact, rtol=1e-5, atol=1e-4)


def test_codes_stay_small_and_fuse():
    """4 bits a weight in the file, and what follows the product is its epilogue."""
    constants, wide = _case("i4", 512, 96, 64, zeros=False)
    nodes = [
        node("DequantizeLinear", "c s", "w", axis=0, block_size=64),
        node("MatMul", "x w", "m"),
        node("Gelu", "m", "g"),
        node("Add", "g x2", "y"),
    ]
    program, report = compiled(model(nodes, {"x": [1, 512], "x2": [1, 96]}, constants))
    assert ops(program) == ["DequantizeMatMul"]
    assert "matmul of codes" in str(report.as_dict())
    stored = sum(np.asarray(v.data).nbytes for v in program.values if v.data is not None)
    assert stored == 512 * 96 // 2 + 8 * 96 * 4
    x, x2 = RNG.standard_normal((1, 512)).astype(np.float32), RNG.standard_normal((1, 96)).astype(np.float32)
    from math import erf, sqrt

    m = x.astype(np.float64) @ wide.astype(np.float64)
    want = m * 0.5 * (1 + np.vectorize(erf)(m / sqrt(2))) + x2
    np.testing.assert_allclose(native(program, {"x": x, "x2": x2})["y"], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block", [4, 12])
def test_other_groups_become_f32_in_the_file(block):
    constants, wide = _case("u4", 72, 64, block, zeros=True)
    nodes = [node("DequantizeLinear", "c s z", "w", axis=0, block_size=block), node("MatMul", "x w", "y")]
    program, _ = compiled(model(nodes, {"x": ["M", 72]}, constants))
    assert ops(program) == ["MatMul"]
    x = RNG.standard_normal((3, 72)).astype(np.float32)
    np.testing.assert_allclose(native(program, {"x": x})["y"], x @ wide, rtol=1e-4, atol=1e-4)


def _nbits(bits: int, zeros: bool, half: bool, k: int = 208, n: int = 40, block: int = 32):
    """A MatMulNBits as ONNX Runtime stores it, and its weights in f32."""
    groups, kind = -(-k // block), f"u{bits}"
    codes, scale = _codes(kind, n, groups * block), RNG.uniform(0.01, 0.1, (n, groups)).astype(np.float32)
    scale = scale.astype(np.float16).astype(np.float32)
    zero = _codes(kind, n, groups) if zeros else np.full((n, groups), 1 << (bits - 1), np.int16)
    wide = ((codes - np.repeat(zero, block, axis=1)).astype(np.float32) * np.repeat(scale, block, axis=1))[:, :k].T

    def packed(x: np.ndarray) -> np.ndarray:
        if bits == 8:
            return x.astype(np.uint8)
        x = np.pad(x, ((0, 0), (0, x.shape[1] % 2))).astype(np.uint8)
        return x[:, ::2] | x[:, 1::2] << 4

    constants = {"c": packed(codes).reshape(n, groups, -1), "s": scale.astype(np.float16 if half else np.float32)}
    constants["z"] = packed(zero).reshape(-1)
    names = "x c s z" if zeros else "x c s"
    made = node("MatMulNBits", names, "y", K=k, N=n, bits=bits, block_size=block, domain="com.microsoft")
    dtype = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    used = {name: v for name, v in constants.items() if name in names}
    imports = [helper.make_opsetid("com.microsoft", 1)]
    return model([made], {"x": ["M", k]}, used, dtype=dtype, imports=imports), wide


@pytest.mark.parametrize(("bits", "zeros", "half"), list(product((4, 8), (False, True), (False, True))))
def test_matmul_nbits(bits, zeros, half):
    proto, wide = _nbits(bits, zeros, half)
    program, _ = compiled(proto)
    assert ops(program).count("DequantizeMatMul") == 1
    x = RNG.standard_normal((3, 208)).astype(np.float16 if half else np.float32)
    want = x.astype(np.float64) @ wide.astype(np.float64)
    got = native(program, {"x": x})["y"].astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=2e-3 if half else 1e-5, atol=1e-2 if half else 1e-4)


@pytest.mark.parametrize("name", ["c", "s", "z"])
def test_matmul_nbits_of_other_sizes_is_not_served(name):
    proto, _ = _nbits(4, zeros=True, half=False)
    tensor = next(t for t in proto.graph.initializer if t.name == name)
    data = numpy_helper.to_array(tensor).reshape(-1)[:-1]
    tensor.CopyFrom(numpy_helper.from_array(data, name))
    with pytest.raises(MissingOperatorError, match="MatMulNBits"):
        compiled(proto)


@pytest.mark.parametrize("change", [{"bits": 3}, {"group": 12}, {"zero": 16}, {"K": 208}, {"N": 81}, {"group": 8}])
def test_damaged_nodes_are_refused(change):
    constants, _ = _case("u4", 200, 80, 32, zeros=False)
    nodes = [node("DequantizeLinear", "c s", "w", axis=0, block_size=32), node("MatMul", "x w", "y")]
    program, _ = compiled(model(nodes, {"x": ["M", 200]}, constants))
    made = program.graphs[0].nodes[0]
    assert isinstance(made, programs.Node)
    made.attributes.update(change)
    with pytest.raises(OpforgeError, match=r"out of range|are not constants of the node's sizes"):
        native(program, {"x": np.zeros((1, 200), np.float32)})
