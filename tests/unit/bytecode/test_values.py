"""Values against mpmath: f32 and f64 within the bounds of vector_math_ulp.def, both profiles; the C++ sweeps, and the
script that derived the coefficients of f64; casts and special values."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import mpmath
import numpy as np
import pytest

from opforge.expr.nodes import ValueType
from opforge.expr.program import Constant, Instruction, Output, Program
from tests.unit.bytecode.conftest import FAST, STRICT
from tests.unit.bytecode.programs import BOOL, ROOT, T, interpreted

mpmath.mp.dps = 60
BOUNDS = {
    name: {"f32": float(f32), "f64": float(f64)}
    for name, f32, f64 in re.findall(
        r"^ULP_\w+\((\w+), ([\d.]+), ([\d.]+)\)",
        (ROOT / "include/opforge/vector_math_ulp.def").read_text(),
        re.MULTILINE,
    )
}
DTYPES = {"f32": np.float32, "f64": np.float64}
PLACES = {"f32": (24, -149), "f64": (53, -1074)}
"""Digits, and the exponent of the smallest denormal."""
mpf = mpmath.mpf
Function = Callable[..., mpmath.mpf]


def _sigmoid(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


# Function, and where to sample it: (low, high) uniformly, and magnitudes 2^low .. 2^high of both signs (or positive).
UNARY: dict[str, tuple[Function, tuple[float, float], tuple[int, int, bool]]] = {
    "exp": (mpmath.exp, (-103, 88), (-40, 6, True)),
    "exp2": (lambda x: mpf(2) ** x, (-148, 127), (-40, 6, True)),
    "expm1": (mpmath.expm1, (-30, 88), (-40, 6, True)),
    "log": (mpmath.log, (0.3, 3), (-149, 127, False)),
    "log2": (lambda x: mpmath.log(x, 2), (0.3, 3), (-149, 127, False)),
    "log10": (mpmath.log10, (0.3, 3), (-149, 127, False)),
    "log1p": (mpmath.log1p, (-0.99, 3), (-40, 120, False)),
    "sin": (mpmath.sin, (-20, 20), (-20, 120, True)),
    "cos": (mpmath.cos, (-20, 20), (-20, 120, True)),
    "tan": (mpmath.tan, (-20, 20), (-20, 120, True)),
    "asin": (mpmath.asin, (-1, 1), (-30, -1, True)),
    "acos": (mpmath.acos, (-1, 1), (-30, -1, True)),
    "atan": (mpmath.atan, (-3, 3), (-30, 100, True)),
    "sinh": (mpmath.sinh, (-88, 88), (-30, 6, True)),
    "cosh": (mpmath.cosh, (-88, 88), (-30, 6, True)),
    "tanh": (mpmath.tanh, (-10, 10), (-30, 6, True)),
    "asinh": (mpmath.asinh, (-10, 10), (-30, 120, True)),
    "acosh": (mpmath.acosh, (1, 10), (0, 120, False)),
    "atanh": (mpmath.atanh, (-0.999, 0.999), (-30, -1, True)),
    "erf": (mpmath.erf, (-5, 5), (-30, 2, True)),
    "erfc": (mpmath.erfc, (-5, 10), (-30, 2, True)),
    "sigmoid": (_sigmoid, (-100, 30), (-30, 6, True)),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)), (-80, 30), (-30, 6, True)),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), (-10, 10), (-149, 127, True)),
    "sqrt": (mpmath.sqrt, (0, 10), (-149, 127, False)),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), (0.1, 10), (-120, 127, False)),
    "reciprocal": (lambda x: 1 / x, (0.1, 10), (-120, 120, True)),
    "square": (lambda x: x * x, (-10, 10), (-60, 60, True)),
    "floor": (mpmath.floor, (-100, 100), (-30, 30, True)),
    "ceil": (mpmath.ceil, (-100, 100), (-30, 30, True)),
    "round": (lambda x: mpf(np.rint(float(x))), (-100, 100), (-30, 30, True)),
    "trunc": (lambda x: mpf(int(x)), (-100, 100), (-30, 30, True)),
}
# The same where f64 reaches further than f32.
WIDE: dict[str, tuple[tuple[float, float], tuple[int, int, bool]]] = {
    "exp": ((-744, 709), (-60, 10, True)),
    "exp2": ((-1074, 1023), (-60, 10, True)),
    "expm1": ((-40, 709), (-60, 9, True)),
    "log": ((0.3, 3), (-1074, 1023, False)),
    "log2": ((0.3, 3), (-1074, 1023, False)),
    "log10": ((0.3, 3), (-1074, 1023, False)),
    "log1p": ((-0.99, 3), (-60, 1023, False)),
    "sin": ((-1e6, 1e6), (-30, 1023, True)),
    "cos": ((-1e6, 1e6), (-30, 1023, True)),
    "tan": ((-1e6, 1e6), (-30, 1023, True)),
    "sinh": ((-709, 709), (-60, 9, True)),
    "cosh": ((-709, 709), (-60, 9, True)),
    "tanh": ((-22, 22), (-60, 5, True)),
    "asinh": ((-10, 10), (-60, 1023, True)),
    "acosh": ((1, 10), (0, 1023, False)),
    "erf": ((-6, 6), (-60, 2, True)),
    "erfc": ((-6, 27.3), (-60, 2, True)),
    "sigmoid": ((-745, 40), (-60, 6, True)),
    "softplus": ((-745, 40), (-60, 6, True)),
    "cbrt": ((-10, 10), (-1074, 1023, True)),
    "sqrt": ((0, 10), (-1074, 1023, False)),
}
BINARY: dict[str, Function] = {
    "pow": lambda x, y: x**y,
    "atan2": mpmath.atan2,
    "fmod": lambda x, y: x - y * int(x / y),
    "mod": lambda x, y: x - y * mpmath.floor(x / y),
}


def samples(
    rng: np.random.Generator, low: float, high: float, magnitudes: tuple[int, int, bool], dtype: type
) -> np.ndarray:
    a = rng.uniform(low, high, 150)
    b = np.ldexp(rng.uniform(1, 2, 150), rng.integers(magnitudes[0], magnitudes[1], 150))
    if magnitudes[2]:
        b *= rng.choice([-1, 1], 150)
    return np.concatenate([a, b]).astype(dtype)


def ulps(got: np.ndarray, exact: list[mpmath.mpf], digits: int, smallest: int) -> np.ndarray:
    """Distance in units of the last place of the exact value's binade."""
    errors = []
    for g, e in zip(got, exact, strict=True):
        if np.isinf(g) and abs(e) > mpf(float(np.finfo(got.dtype).max)):
            errors.append(0.0)
            continue
        exponent = int(mpmath.floor(mpmath.log(abs(e), 2))) if e != 0 else smallest
        unit = mpf(2) ** max(exponent - digits + 1, smallest)
        errors.append(float(abs(mpf(float(g)) - e) / unit))
    return np.array(errors)


def program(op: str, arity: int) -> Program:
    return Program((T,) * arity, (), (), (Instruction(op, tuple(range(arity)), T),), (Output(arity, None, T),))


def test_every_function_has_a_bound_and_a_reference() -> None:
    assert set(BOUNDS) == {*UNARY, *BINARY}
    assert all(max(BOUNDS[name].values()) <= 2 for name in ("exp", "log", "tanh", "erf", "sigmoid"))


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.parametrize("storage", ["f32", "f64"])
def test_unary(op: str, storage: str) -> None:
    function, (low, high), magnitudes = UNARY[op]
    if storage == "f64" and op in WIDE:
        (low, high), magnitudes = WIDE[op]
    rng = np.random.default_rng(sum(map(ord, op)))
    x = samples(rng, low, high, magnitudes, DTYPES[storage])
    got = interpreted(program(op, 1), (storage,))(storage, [x])[0]
    errors = ulps(got, [function(mpf(float(v))) for v in x], *PLACES[storage])
    assert errors.max() <= BOUNDS[op][storage], (x[errors.argmax()], got[errors.argmax()], errors.max())


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("storage", ["f32", "f64"])
def test_binary(op: str, storage: str) -> None:
    rng = np.random.default_rng(5)
    x = (np.abs(rng.standard_normal(300) * 3) + 1e-3).astype(DTYPES[storage])
    y = (rng.standard_normal(300) * 8).astype(DTYPES[storage])
    if op != "pow":
        x *= rng.choice([-1, 1], 300).astype(DTYPES[storage])
    elif storage == "f64":  # results of all magnitudes
        y[:200] = rng.uniform(-740, 709, 200) / np.log(x[:200])
    got = interpreted(program(op, 2), (storage,))(storage, [x, y])[0]
    exact = [BINARY[op](mpf(float(a)), mpf(float(b))) for a, b in zip(x, y, strict=True)]
    errors = ulps(got, exact, *PLACES[storage])
    assert errors.max() <= BOUNDS[op][storage], (x[errors.argmax()], y[errors.argmax()], errors.max())


def test_f64_is_exact_where_mathematics_is() -> None:
    """Powers of whole numbers, and what undoes them."""
    whole = np.arange(-1074, 1024, dtype=np.float64)
    powers = np.ldexp(1.0, whole.astype(int))
    small = np.arange(1, 23, dtype=np.float64)
    cases = [
        ("exp2", [whole], powers),
        ("log2", [powers], whole),
        ("log10", [np.array([float(f"1e{k}") for k in range(23)])], np.arange(23.0)),
        ("cbrt", [np.arange(-400.0, 401.0) ** 3], np.arange(-400.0, 401.0)),
        ("pow", [small, np.full_like(small, 11)], np.array([float(int(v) ** 11) for v in small])),
        ("pow", [np.full_like(whole, 2.0), whole], powers),
        ("pow", [np.full(8, -3.0), np.arange(8.0)], np.array([(-3.0) ** k for k in range(8)])),
        ("exp", [np.zeros(3)], np.ones(3)),
        ("cosh", [np.zeros(3)], np.ones(3)),
        ("sigmoid", [np.zeros(3)], np.full(3, 0.5)),
        ("acos", [np.ones(3)], np.zeros(3)),
    ]
    for op, inputs, expected in cases:
        got = interpreted(program(op, len(inputs)), ("f64",))("f64", inputs)[0]
        assert np.array_equal(got, expected), (op, got[got != expected])


_LARGEST, _SMALLEST = float(np.finfo(np.float64).max), 5e-324
# Arguments just before a result leaves the range of f64, and those beyond with what they give.
LAST = {
    "exp": [709.782712893384, -745.1332191019411],
    "exp2": [np.nextafter(1024, 0), -1074.9],
    "expm1": [709.782712893384, _SMALLEST, -_SMALLEST],
    "sinh": [710.4758600739439, -710.4758600739439, _SMALLEST],
    "cosh": [710.4758600739439, -710.4758600739439],
    "sigmoid": [-745.1332191019411, 36.7, 36.8],
    "softplus": [-745.1332191019411, 36.7, 36.8],
    "erfc": [27.2, 26.6, 5.8, -5.8],
    "erf": [5.9, 5.92, _SMALLEST],
    "tanh": [19.06, 19.07, _SMALLEST],
    "asinh": [_LARGEST, _SMALLEST],
    "log1p": [_LARGEST, -_SMALLEST, np.nextafter(-1, 0)],
    "log": [_SMALLEST, _LARGEST],
    "sin": [6381956970095103.0 * 2.0**797, _LARGEST, _SMALLEST],
    "cos": [6381956970095103.0 * 2.0**797, _LARGEST, _SMALLEST],
    "tan": [6381956970095103.0 * 2.0**797, _LARGEST, _SMALLEST],
    "atan": [_LARGEST, _SMALLEST],
    "cbrt": [_LARGEST, _SMALLEST, -_SMALLEST],
}
BEYOND = {
    "exp": [(709.7827128933841, np.inf), (-745.1332191019412, 0.0), (_LARGEST, np.inf)],
    "exp2": [(1024.0, np.inf), (-1075.0, 0.0), (-_LARGEST, 0.0)],
    "expm1": [(709.7827128933841, np.inf), (-800.0, -1.0)],
    "sinh": [(710.475860073944, np.inf), (-711.0, -np.inf), (-_LARGEST, -np.inf)],
    "cosh": [(710.475860073944, np.inf), (-800.0, np.inf), (_LARGEST, np.inf)],
    "sigmoid": [(-746.0, 0.0), (40.0, 1.0), (_LARGEST, 1.0), (-_LARGEST, 0.0)],
    "softplus": [(-746.0, 0.0), (_LARGEST, _LARGEST), (-_LARGEST, 0.0)],
    "erfc": [(27.3, 0.0), (-6.0, 2.0), (_LARGEST, 0.0)],
    "erf": [(6.0, 1.0), (-_LARGEST, -1.0)],
    "tanh": [(22.0, 1.0), (-_LARGEST, -1.0)],
}


@pytest.mark.parametrize("op", LAST)
def test_f64_at_the_ends_of_its_range(op: str) -> None:
    x = np.array(LAST[op], np.float64)
    got = interpreted(program(op, 1), ("f64",))("f64", [x])[0]
    with mpmath.workdps(400):
        errors = ulps(got, [UNARY[op][0](mpf(float(v))) for v in x], *PLACES["f64"])
    assert errors.max() <= BOUNDS[op]["f64"] and np.all(np.isfinite(got)), (x, got, errors)
    for argument, expected in BEYOND.get(op, []):
        assert interpreted(program(op, 1), ("f64",))("f64", [np.array([argument])])[0][0] == expected, (op, argument)


def test_the_kept_coefficients_are_derived() -> None:
    """A polynomial of the headers is what tools/minimax.py gives."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/minimax.py"), "sin_tail"], capture_output=True, text=True, check=True
    )
    text = (ROOT / "include/opforge/detail/vector64_trig.h").read_text()
    coefficients = re.findall(r"-?0x[\d.a-fp+-]+", done.stdout)
    assert len(coefficients) == 6 and all(c in text for c in coefficients), done.stdout


SPECIAL = [
    ("exp", np.inf, np.inf), ("exp", -np.inf, 0.0), ("log", 0.0, -np.inf), ("log", -0.0, -np.inf),
    ("log", -1.0, np.nan),
    ("log", np.inf, np.inf), ("log1p", -1.0, -np.inf), ("log1p", -0.0, -0.0), ("expm1", -0.0, -0.0),
    ("expm1", -np.inf, -1.0),
    ("tanh", -0.0, -0.0), ("tanh", np.inf, 1.0), ("erf", -0.0, -0.0), ("erf", -np.inf, -1.0), ("erfc", np.inf, 0.0),
    ("erfc", -np.inf, 2.0), ("sigmoid", -np.inf, 0.0), ("sigmoid", np.inf, 1.0), ("sigmoid", -104.5, 0.0),
    ("softplus", -np.inf, 0.0),
    ("softplus", np.inf, np.inf), ("sin", -0.0, -0.0), ("sin", np.inf, np.nan), ("cos", -np.inf, np.nan),
    ("tan", -0.0, -0.0),
    ("sqrt", -0.0, -0.0), ("sqrt", -1.0, np.nan), ("cbrt", -0.0, -0.0), ("cbrt", -np.inf, -np.inf),
    ("asin", 1.5, np.nan),
    ("acosh", 0.5, np.nan), ("atanh", 1.0, np.inf), ("atanh", -0.0, -0.0), ("asinh", -np.inf, -np.inf),
    ("sinh", -0.0, -0.0),
    ("sinh", -100.0, -np.inf), ("cosh", -100.0, np.inf), ("sign", -0.0, -0.0), ("sign", np.nan, np.nan),
    ("relu", np.nan, np.nan),
    ("relu", -1.0, 0.0), ("floor", -0.5, -1.0), ("ceil", -0.5, -0.0), ("round", 2.5, 2.0), ("round", -0.4, -0.0),
    ("trunc", -0.9, -0.0),
    ("neg", 0.0, -0.0), ("abs", -0.0, 0.0), ("reciprocal", -0.0, -np.inf), ("rsqrt", 0.0, np.inf),
    ("atan", np.inf, np.pi / 2),
]  # fmt: skip


@pytest.mark.parametrize("storage", ["f32", "f64"])
def test_special_values(storage: str) -> None:
    dtype = np.float32 if storage == "f32" else np.float64
    for op, x, expected in SPECIAL:
        if storage == "f64" and x in (-104.5, -100.0):
            continue  # far from overflow there
        got = interpreted(program(op, 1), (storage,))(storage, [np.array([x], dtype)])[0][0]
        want = dtype(expected)
        same = np.isnan(got) if np.isnan(want) else (got == want and np.signbit(got) == np.signbit(want))
        assert same, (op, x, got, want)
    for op in UNARY:
        assert np.isnan(interpreted(program(op, 1), (storage,))(storage, [np.array([np.nan], dtype)])[0][0]), op


@pytest.mark.parametrize("storage", ["f32", "f64"])
@pytest.mark.parametrize("op", ["min", "max", "pow", "fmod", "mod", "atan2"])
def test_pairs_of_special_values_as_numpy(op: str, storage: str) -> None:
    dtype = np.float32 if storage == "f32" else np.float64
    values = np.array(
        [0.0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38, 16777216, -7], dtype
    )
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    functions = {
        "min": np.minimum, "max": np.maximum, "pow": np.power, "fmod": np.fmod, "mod": np.mod, "atan2": np.arctan2,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        expected = functions[op](x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    got = interpreted(program(op, 2), (storage,))(storage, [x, y])[0]
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-6 if storage == "f32" else 1e-15)
    if op not in ("min", "max"):  # of zeros of both signs these may take either
        assert np.array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(expected[~np.isnan(got)]))


def test_casts() -> None:
    """Float to integer cuts and saturates, NaN gives 0; integers wrap; everything but 0 is true."""
    x = np.array(
        [0.0, -0.0, 0.9, -0.9, 1.5, -1.5, 127, 128, -129, 255, 256, 3e9, -3e9, 1e20, -1e20, np.inf, -np.inf, np.nan],
        np.float32,
    )
    for type_, dtype in (
        (ValueType.I32, np.int32),
        (ValueType.I64, np.int64),
        (ValueType.U8, np.uint8),
        (ValueType.I8, np.int8),
    ):
        p = Program((T,), (), (), (Instruction("cast", (0,), type_),), (Output(1, None, type_),))
        info = np.iinfo(dtype)
        expected = [0 if np.isnan(v) else int(max(min(np.trunc(np.float64(v)), info.max), info.min)) for v in x]
        for storage in ("f32", "f64"):
            got = interpreted(p, (storage,))(storage, [x.astype(np.float64) if storage == "f64" else x])[0]
            assert got.tolist() == expected
    truth = Program((T,), (), (), (Instruction("cast", (0,), BOOL),), (Output(1, None, BOOL),))
    assert interpreted(truth, ("f32",))("f32", [x])[0].tolist() == [bool(v != 0) for v in x]
    wraps = Program(
        (ValueType.I64,), (), (), (Instruction("cast", (0,), ValueType.I8),), (Output(1, None, ValueType.I8),)
    )
    assert interpreted(wraps, ("f32",))("f32", [np.array([300, -129], np.int64)])[0].tolist() == [44, 127]


def test_half_types_round_once() -> None:
    """x * x + y in f16 and bf16: computed in f32, rounded at the end; round_half keeps a rounding inside."""
    rng = np.random.default_rng(0)
    body = (Instruction("mul", (0, 0), T), Instruction("add", (2, 1), T))
    seam = (Instruction("mul", (0, 0), T), Instruction("round_half", (2,), T), Instruction("add", (3, 1), T))
    for storage, dtype in (("f16", np.float16), ("bf16", ml_dtypes.bfloat16)):
        x, y = (rng.standard_normal(999).astype(dtype) for _ in range(2))
        wide = x.astype(np.float32) * x.astype(np.float32)
        once = interpreted(Program((T, T), (), (), body, (Output(3, None, T),)), (storage,))(storage, [x, y])[0]
        twice = interpreted(Program((T, T), (), (), seam, (Output(4, None, T),)), (storage,))(storage, [x, y])[0]
        assert np.array_equal(once, (wide + y.astype(np.float32)).astype(dtype))
        assert np.array_equal(twice, (wide.astype(dtype).astype(np.float32) + y.astype(np.float32)).astype(dtype))
        assert not np.array_equal(once, twice)


HALVES = [("round_f16", np.float16), ("round_bf16", ml_dtypes.bfloat16)]


@pytest.mark.parametrize(("name", "dtype"), HALVES)
@pytest.mark.parametrize("type_", [T, ValueType.F32])
def test_rounding_to_a_half_type_inside_a_program(name: str, dtype: type, type_: ValueType) -> None:
    """Ties, denormals, overflow and what is not finite, alone and as a link between cheap instructions."""
    rng = np.random.default_rng(1)
    # Every pattern of the half type, the middle to the next one, and a little to each side of it.
    exact = np.arange(65536, dtype=np.uint16).view(dtype).astype(np.float32)
    exact = exact[np.isfinite(exact)]
    middle = (exact.astype(np.float64) * (1 + 2.0**-11 if dtype is np.float16 else 1 + 2.0**-8)).astype(np.float32)
    x = np.concatenate([exact, middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf))])
    wide = np.frombuffer(rng.bytes(4 * 20011), np.float32)
    x = np.concatenate([x, wide, np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0, 65519.99, 65520.0, 2.0**-25])])
    with np.errstate(all="ignore"):
        want = x.astype(dtype).astype(np.float32)
        twice = (x + np.float32(1)).astype(dtype).astype(np.float32) * np.float32(0.3)
    alone = Program((type_,), (), (), (Instruction(name, (0,), type_),), (Output(1, None, type_),))
    steps = (Instruction("add", (0, 1), type_), Instruction(name, (3,), type_), Instruction("mul", (4, 2), type_))
    constants = (Constant(1.0, type_), Constant(0.3, type_))
    chained = Program((type_,), (), constants, steps, (Output(5, None, type_),))
    for program, expected in ((alone, want), (chained, twice)):
        got = interpreted(program, ("f32",))("f32", [x])[0]
        assert np.array_equal(got, expected, equal_nan=True)
        assert np.array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))


def test_rounding_to_another_half_type_than_the_storage() -> None:
    rng = np.random.default_rng(2)
    body = (Instruction("mul", (0, 0), T), Instruction("round_bf16", (1,), T), Instruction("add", (2, 0), T))
    x = rng.standard_normal(999).astype(np.float16)
    product = (x.astype(np.float32) ** 2).astype(ml_dtypes.bfloat16).astype(np.float32)
    got = interpreted(Program((T,), (), (), body, (Output(3, None, T),)), ("f16",))("f16", [x])[0]
    assert np.array_equal(got, (product + x.astype(np.float32)).astype(np.float16))
    wide = rng.standard_normal(99)
    alone = Program((T,), (), (), (Instruction("round_f16", (0,), T),), (Output(1, None, T),))
    assert np.array_equal(interpreted(alone, ("f64",))("f64", [wide])[0], wide)


def test_constants_round_once() -> None:
    p = Program((T,), (), (Constant(0.1, T),), (Instruction("add", (0, 1), T),), (Output(2, None, T),))
    assert interpreted(p, ("f32",))("f32", [np.zeros(3, np.float32)])[0].tolist() == [float(np.float32(0.1))] * 3
    assert interpreted(p, ("f64",))("f64", [np.zeros(3)])[0].tolist() == [0.1] * 3


@pytest.mark.compiler
@pytest.mark.parametrize("storage", ["f32", "f64"])
@pytest.mark.parametrize("profile", ["fast", "strict"])
def test_sweep(profile: str, storage: str, compiler: str, tmp_path: Path) -> None:
    """All functions over numbers of every magnitude; widths 4, 8 and 16 agree, and the bits of f64 are those kept."""
    name, arguments = ("vector_math_test", ["65521"]) if storage == "f32" else ("vector_math_f64_test", [])
    program_path = tmp_path / name
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-ffp-contract=off", "-fno-math-errno"]
    flags += [*(FAST if profile == "fast" else STRICT), f"-I{ROOT / 'include'}"]
    source = ROOT / f"tests/cpp/{name}.cpp"
    done = subprocess.run([compiler, *flags, str(source), "-o", str(program_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    done = subprocess.run([str(program_path), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(f"profile {profile}") and done.stdout.count("ulp (bound") == len(BOUNDS)
