"""Cases of TiledMatMul: sizes at, below and above the edges of a tile, and empty ones."""

_SIZES = [
    ("one", 1, 1, 1),
    ("below a tile", 5, 3, 7),
    ("one tile", 64, 16, 64),
    ("beyond a tile", 65, 17, 66),
    ("a column", 70, 33, 1),
    ("no rows", 0, 4, 5),
    ("no columns", 4, 5, 0),
    ("an empty sum", 3, 0, 2),
]

CASES = {
    "TiledMatMul": [
        {
            "name": name,
            "inputs": {"left": {"shape": [m, k], "normal": 1.0}, "right": {"shape": [k, n], "normal": 1.0}},
        }
        for name, m, k, n in _SIZES
    ]
}

TOLERANCES = {
    "f64": (1e-13, 1e-13, "sums of at most 33 products, cancellation against values of size 1"),
    "f32": (1e-5, 1e-5, "sums of at most 33 products, cancellation against values of size 1"),
    "bf16": (2**-8, 1e-4, "summed in f32, rounded once to 8 bits"),
    "f16": (2**-11, 1e-4, "summed in f32, rounded once to 11 bits"),
}

TUNING = {
    "TiledMatMul": {
        "variants": ["cuBLAS"],
        "cases": [
            {
                "name": name,
                "inputs": {"left": {"shape": [m, k], "normal": 1.0}, "right": {"shape": [k, n], "normal": 1.0}},
            }
            for name, m, k, n in [("small", 64, 64, 64), ("medium", 512, 512, 512), ("large", 2048, 2048, 2048)]
        ],
    }
}
