"""One table of conversions between the types of formulas, for every path that computes them.

The rule is that of docs/design/numbers.md; `expected` states it in plain Python, apart from what is tested.
"""

import math
import struct

import numpy as np

import opforge as of

BITS = {"i32": (32, True), "i64": (64, True), "u8": (8, False), "i8": (8, True)}
NUMPY = {"T": np.float32, "f32": np.float32, "f64": np.float64, "bool": np.bool_, "i32": np.int32, "i64": np.int64}
NUMPY |= {"u8": np.uint8, "i8": np.int8}

_EDGES = [0.0, 0.5, 1.0, 1.5, 127.0, 127.5, 128.0, 129.0, 200.75, 255.0, 255.5, 256.0, 257.0, 300.0, 511.0, 65536.0]
_EDGES += [2.0**k * f for k in (31, 32, 33, 40, 53, 62, 63, 64) for f in (1.0, 1.5)] + [
    2.0**31 - 128,
    2.0**63 - 2.0**39,
]
_EDGES += [3e9, 1e20, 3e38, math.inf]
VALUES = np.array([*_EDGES, *(-v for v in _EDGES), math.nan], np.float32)

# Source and target of each output, by operator; a source is reached by a conversion of the input.
PAIRS = {
    "FloatToInteger": [(s, d) for s in ("T", "f64") for d in BITS],
    "IntegerToInteger": [("i64", "i32"), ("i64", "u8"), ("i64", "i8"), ("i32", "u8"), ("i32", "i8"), ("i32", "i64"),
                         ("u8", "i8"), ("i8", "u8")],
    "ToTruth": [(s, "bool") for s in ("T", "f64", "i32", "i64", "u8", "i8")] + [("u8", "i32"), ("i8", "i64")],
    "FromTruth": [("bool", d) for d in (*BITS, "f32", "f64")] + [("i64", "f32"), ("i8", "f64")],
}  # fmt: skip


def _operator(name):
    pairs = PAIRS[name]

    @of.formula(
        f"test.conversions::{name}",
        dtypes=[of.f32],
        differentiable=False,
        outputs=[f"{source.lower()}_to_{target}" for source, target in pairs],
    )
    def convert(x):
        """Convert twice."""
        return tuple(of.cast(of.cast(x, source), target) for source, target in pairs)

    return convert


OPERATORS = {name: _operator(name) for name in PAIRS}


def _converted(value, source, target):
    if target == "bool":
        return value != 0
    if target == "f32":
        return np.float32(value).item()
    if target in ("T", "f64"):
        return float(value)
    bits, signed = BITS[target]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if source in BITS or source == "bool":
        return (int(value) - low) % 2**bits + low
    if math.isnan(value):
        return 0
    return max(low, min(high, value if math.isinf(value) else math.trunc(value)))


def expected(name, values=VALUES):
    """The outputs of an operator."""
    results = []
    for source, target in PAIRS[name]:
        between = [_converted(v, "T", source) for v in values.tolist()]
        results.append(np.array([_converted(v, source, target) for v in between], NUMPY[target]))
    return results


def compare(name, found, values=VALUES):
    """Compare the outputs of an operator, bit by bit."""
    for (source, target), got, right in zip(PAIRS[name], found, expected(name, values), strict=True):
        got = np.asarray(got)
        wrong = [
            f"{v!r}: {g!r}, not {r!r}"
            for v, g, r in zip(values.tolist(), got.tolist(), right.tolist(), strict=True)
            if not (g == r or (g != g and r != r)) or struct.pack("?d", False, g) != struct.pack("?d", False, r)
        ]
        assert got.dtype == right.dtype, f"{source} to {target}: {got.dtype}"
        assert not wrong, f"{source} to {target}: {wrong}"
