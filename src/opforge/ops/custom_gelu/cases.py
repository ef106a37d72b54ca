"""Cases of CustomGELU: plain data for every host and check (opforge.verify.cases)."""

_SPECIAL = ["nan", "inf", "-inf", 0.0, -0.0, 1e-40, -1e-40, 30.0, -30.0, 1.0]

CASES = [
    {"name": "vector", "inputs": {"x": {"shape": [1000], "low": -8.0, "high": 8.0}}},
    {"name": "matrix", "inputs": {"x": {"shape": [7, 33], "normal": 2.0}}},
    {"name": "scalar", "inputs": {"x": {"values": 0.75}}},
    {"name": "empty", "inputs": {"x": {"shape": [3, 0]}}},
    {"name": "special", "inputs": {"x": {"values": _SPECIAL}}},
]

TOLERANCES = {
    "f64": (1e-14, 1e-15, "libm functions of 1 ULP, a few roundings"),
    "f32": (2e-6, 1e-7, "functions of at most 2 ULP and a few roundings"),
    "bf16": (2**-8, 1e-7, "one rounding to 8 bits of significand"),
    "f16": (2**-11, 2**-24, "one rounding to 11 bits of significand; denormals below 6e-5"),
}
