"""A kernel operator whose output size depends on an attribute."""

from pathlib import Path

import numpy as np

import opforge as of

padded = of.kernel(
    "test.tf::Padded",
    "(x: T[n]; extra: int = 1) -> (y: T[n + extra])",
    types={"T": of.f32},
    sources=[Path(__file__).with_name("padded.cc")],
    reference=lambda x, *, extra: np.concatenate([x, np.zeros(extra)]),
)
