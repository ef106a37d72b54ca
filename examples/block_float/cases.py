"""Cases of BlockFloat."""

CASES = [
    {"name": "matrix", "inputs": {"x": {"shape": [5, 33], "normal": 2.0}}},
    {"name": "a block of four", "inputs": {"x": {"values": [1.0, -0.37, 100.0, 0.3]}}, "attributes": {"bits": 4}},
    {"name": "halves to even", "inputs": {"x": {"values": [64.5, 65.5, -64.5, 127.5]}}},
    {"name": "one number", "inputs": {"x": {"values": 3.3}}, "attributes": {"block": 1, "bits": 2}},
    {"name": "zeros", "inputs": {"x": {"values": [0.0, -0.0, 0.0]}}},
    {"name": "not finite", "inputs": {"x": {"values": ["nan", "inf", 1.3, "-inf", 0.2]}}, "attributes": {"bits": 5}},
    {
        "name": "a block beyond the row",
        "inputs": {"x": {"shape": [3, 37], "normal": 2.0}},
        "attributes": {"block": 2**63 - 1},
    },
    {"name": "smallest", "inputs": {"x": {"values": [1e-45, 3e-44, -1e-40]}}},
    {"name": "empty", "inputs": {"x": {"shape": [0, 3]}}},
]

# The gradient is not the derivative of rounding; it passes as if nothing were rounded.
SURROGATES = {"BlockFloat": lambda x, *, block, bits: x}
