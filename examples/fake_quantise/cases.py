"""Cases of FakeQuantise and StraightThrough."""

import numpy as np

# Scales are powers of two, so that halves are exact in every dtype: rounding them otherwise would show.
CASES = {
    "FakeQuantise": [
        {"name": "random", "inputs": {"x": {"shape": [7, 33], "normal": 2.0}}, "attributes": {"scale": 0.25}},
        {
            "name": "four bits",
            "inputs": {"x": {"values": [-9.0, -2.0, -1.75, -0.25, 0.0, 0.25, 0.75, 1.25, 3.5, 9.0]}},
            "attributes": {"scale": 0.5, "low": -8.0, "high": 7.0},
        },
        {"name": "empty", "inputs": {"x": {"shape": [0, 3]}}, "attributes": {"scale": 1.0}},
    ],
    "StraightThrough": [
        {
            "name": "random",
            "inputs": {"g": {"shape": [65], "normal": 1.0}, "x": {"shape": [65], "normal": 3.0}},
            "attributes": {"scale": 0.5, "low": -8.0, "high": 7.0},
        },
    ],
}

# The gradient is not the derivative of rounding; it is that of the clip alone.
SURROGATES = {"FakeQuantise": lambda x, *, scale, low, high: np.clip(x, low * scale, high * scale)}
