"""Cases of SoftGate."""

CASES = [
    {
        "name": "same shape",
        "inputs": {"x": {"shape": [7, 33], "normal": 2.0}, "gate": {"shape": [7, 33], "normal": 2.0}},
    },
    {
        "name": "gate per column",
        "inputs": {"x": {"shape": [9, 65], "normal": 2.0}, "gate": {"shape": [65], "low": -3.0, "high": 3.0}},
        "attributes": {"threshold": 0.5, "temperature": 0.25},
    },
]
