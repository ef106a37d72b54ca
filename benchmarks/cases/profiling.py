"""What it costs to be watched: a session whose nodes are profiled against one that nobody watches, on the same file."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _models

UNWATCHED = "unwatched"
_EVENTS = 2_000_000
_SHAPES = {
    "minilm": {"input_ids": (1, 128), "attention_mask": (1, 128)},
    "mlp": {"x": (32, 64)},
    "smallest": {"x": (1,)},
}


def _watched(name: str, every: int, threads: int) -> Prepared:
    import opforge as of

    path = _models.bin_path(name)
    inputs = {key: np.ones(shape, np.int64 if "i" in key else np.float32) for key, shape in _SHAPES[name].items()}
    plain, watched = (of.Session(path, threads=threads) for _ in range(2))
    expected = plain.run(inputs)
    watched.profile_events(_EVENTS, every=every)
    for key, value in watched.run(inputs).items():
        np.testing.assert_array_equal(value, expected[key])
    return Prepared({OURS: lambda: watched.run(inputs), UNWATCHED: lambda: plain.run(inputs)})


CASES = [
    Case("profiled minilm 1x128", partial(_watched, "minilm", 1), {UNWATCHED: 0.98}),
    Case("profiled mlp 32x64", partial(_watched, "mlp", 1), {UNWATCHED: 0.98}),
    # One node of 20 ns: readings of the clock are a tenth of the call, so one run in so many is watched.
    Case("profiled smallest, 1 run in 16", partial(_watched, "smallest", 16), {UNWATCHED: 0.98}),
]
