"""Cases of SparseMatMul and of the operators that its gradients call: plain data (opforge.verify.cases)."""

import numpy as np


def _csr(rows: int, columns: int, density: float) -> dict[str, dict[str, object]]:
    shape = {"rows": rows, "columns": columns, "density": density}
    return {part: {"csr": {**shape, "part": part}} for part in ("values", "indices", "indptr")}


def _uneven() -> dict[str, dict[str, object]]:
    """One row much longer than the others, which kernels may take in parts."""
    indptr = [0, 0, 300, 301, 301, 303, 303]
    indices = [p * p % 7 for p in range(303)]
    return {"values": {"shape": [303], "normal": 1.0}, "indices": {"values": indices}, "indptr": {"values": indptr}}


# Sizes around the kernel's blocks: 16 lanes, 128 columns at once, tails, and panels.
_SIZES = [
    ("small", 5, 7, 0.4, 3),
    ("one column", 9, 6, 0.5, 1),
    ("one vector", 6, 6, 0.5, 16),
    ("one row", 1, 4, 0.9, 17),
    ("tails", 13, 11, 0.3, 213),
    ("wide", 17, 40, 0.2, 300),
    ("panels", 6, 4500, 0.01, 275),
    ("packed panels", 40, 1030, 0.2, 512),
    ("no rows", 0, 4, 0.5, 5),
    ("no columns of dense", 4, 5, 0.5, 0),
    ("empty matrix", 4, 5, 0.0, 6),
    ("empty product", 3, 0, 0.0, 2),
]

CASES = {
    "SparseMatMul": [
        {"name": name, "inputs": {**_csr(m, k, density), "dense": {"shape": [k, n], "normal": 1.0}}}
        for name, m, k, density, n in _SIZES
    ]
    + [{"name": "uneven rows", "inputs": {**_uneven(), "dense": {"shape": [7, 9], "normal": 1.0}}}],
    "SparseMatMulGradDense": [
        {
            "name": name,
            "inputs": {
                **_csr(m, k, density),
                "dense": {"shape": [m, n], "normal": 1.0},
                "like": {"shape": [k, 2], "normal": 1.0},
            },
        }
        for name, m, k, density, n in _SIZES
    ]
    + [
        {
            "name": "uneven rows",
            "inputs": {
                **_uneven(),
                "dense": {"shape": [6, 8], "normal": 1.0},
                "like": {"shape": [7, 1], "normal": 1.0},
            },
        }
    ],
    "SparseMatMulGradValues": [
        {
            "name": name,
            "inputs": {
                **{part: spec for part, spec in _csr(m, k, density).items() if part != "values"},
                "left": {"shape": [m, n], "normal": 1.0},
                "right": {"shape": [k, n], "normal": 1.0},
            },
        }
        for name, m, k, density, n in _SIZES
    ],
}

TOLERANCES = {
    "f64": (1e-13, 1e-13, "sums of at most 600 products, cancellation against values of size 1"),
    "f32": (1e-5, 1e-5, "sums of at most 600 products, cancellation against values of size 1"),
    "bf16": (2**-8, 1e-4, "summed in f32, rounded once to 8 bits"),
    "f16": (2**-11, 1e-4, "summed in f32, rounded once to 11 bits"),
}

# Rows alike, with few and with many entries. Which of our own variants is faster depends on how uneven rows are, and
# the kernel looks at that in every call: they are measured to be seen. cuSPARSE is kept where it is faster, but not
# where it adds in any order, since results must not depend on the run.
_MEASURED = [
    ("small", 64, 64, 0.1, 32),
    ("medium", 1024, 1024, 0.05, 512),
    ("many rows", 20000, 1000, 0.01, 64),
    ("vector", 20000, 1000, 0.01, 1),
]

_SHOWN = {"variants": ["by rows", "merged", "cuSPARSE", "cuSPARSE, any order"], "kept": ["cuSPARSE"]}
TUNING = {
    "SparseMatMul": {
        **_SHOWN,
        "cases": [
            {"name": name, "inputs": {**_csr(m, k, density), "dense": {"shape": [k, n], "normal": 1.0}}}
            for name, m, k, density, n in _MEASURED
        ],
    },
    "SparseMatMulGradDense": {
        **_SHOWN,
        "cases": [
            {
                "name": name,
                "inputs": {
                    **_csr(m, k, density),
                    "dense": {"shape": [m, n], "normal": 1.0},
                    "like": {"shape": [k, 2], "normal": 1.0},
                },
            }
            for name, m, k, density, n in _MEASURED
        ],
    },
    "SparseMatMulGradValues": {
        "variants": ["cuSPARSE"],
        "cases": [
            {
                "name": name,
                "inputs": {
                    **{part: spec for part, spec in _csr(m, k, density).items() if part != "values"},
                    "left": {"shape": [m, n], "normal": 1.0},
                    "right": {"shape": [k, n], "normal": 1.0},
                },
            }
            for name, m, k, density, n in _MEASURED
        ],
    },
}


def _draw(rng: np.random.Generator, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """A matrix of the drawn size: empty rows, columns in any order, equal ones too."""
    rows, columns = sizes["m"], sizes["k"]
    counts = rng.integers(0, 4, rows) if columns else np.zeros(rows, np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return {"indptr": indptr, "indices": rng.integers(0, max(columns, 1), int(indptr[-1]))}


DRAWS = dict.fromkeys(CASES, _draw)
