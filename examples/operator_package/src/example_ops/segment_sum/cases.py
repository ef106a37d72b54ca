"""Cases of SegmentSum and SegmentSpread: full, empty and single segments."""

_SEGMENTS = [("small", [0, 2, 2, 5]), ("one", [0, 4]), ("all empty", [0, 0, 0]), ("many", [0, *range(1, 40, 3), 40])]

CASES = {
    "SegmentSum": [
        {"name": name, "inputs": {"values": {"shape": [offsets[-1], 6], "normal": 1.0}, "offsets": {"values": offsets}}}
        for name, offsets in _SEGMENTS
    ],
    "SegmentSpread": [
        {
            "name": name,
            "inputs": {
                "sums": {"shape": [len(offsets) - 1, 6], "normal": 1.0},
                "offsets": {"values": offsets},
                "like": {"shape": [offsets[-1], 6], "normal": 1.0},
            },
        }
        for name, offsets in _SEGMENTS
    ],
}

TOLERANCES = {
    "f64": (1e-13, 1e-13, "sums of at most 5 rows, cancellation against values of size 1"),
    "f32": (1e-5, 1e-6, "sums of at most 5 rows, cancellation against values of size 1"),
    "f16": (2**-10, 1e-3, "summed in f32, rounded once to 11 bits"),
    "bf16": (2**-7, 1e-3, "summed in f32, rounded once to 8 bits"),
}
