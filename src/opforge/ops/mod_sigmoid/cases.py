"""Cases of ModSigmoid: plain data for every host and check (opforge.verify.cases)."""

_SPECIAL = ["nan", "inf", "-inf", 0.0, -0.0, 1e-40, -1e-40, 30.0, -30.0, 1.0]

CASES = [
    {
        "name": "row",
        "inputs": {"x": {"shape": [9, 65], "normal": 3.0}, "threshold": {"shape": [65], "low": -1.0, "high": 1.0}},
    },
    {
        "name": "column",
        "inputs": {"x": {"shape": [9, 65], "normal": 3.0}, "threshold": {"shape": [9, 1], "low": -1.0, "high": 1.0}},
    },
    {
        "name": "outer",
        "inputs": {"x": {"shape": [5, 1, 4], "normal": 3.0}, "threshold": {"shape": [6, 1], "low": -1.0, "high": 1.0}},
    },
    {"name": "scalar", "inputs": {"x": {"shape": [31], "normal": 3.0}, "threshold": {"values": 0.5}}},
    {"name": "empty", "inputs": {"x": {"shape": [0, 4]}, "threshold": {"shape": [4]}}},
    {
        "name": "special",
        "inputs": {"x": {"values": _SPECIAL}, "threshold": {"values": 0.0}},
    },
]

TOLERANCES = {
    "f64": (1e-14, 1e-15, "libm functions of 1 ULP, a few roundings"),
    "f32": (2e-6, 1e-7, "functions of at most 2 ULP and a few roundings"),
    "bf16": (2**-8, 1e-7, "one rounding to 8 bits of significand"),
    "f16": (2**-11, 2**-24, "one rounding to 11 bits of significand; denormals below 6e-5"),
}
