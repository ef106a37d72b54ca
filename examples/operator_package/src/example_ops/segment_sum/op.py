"""SegmentSum: sums of consecutive rows, and SegmentSpread, which its gradient calls."""

from itertools import pairwise

import numpy as np

import opforge as of

TYPES = {"T": of.floating, "I": of.index}


def _reference(values, offsets):
    return np.stack([values[a:b].sum(axis=0) for a, b in pairwise(offsets)])


def _gradient(inputs, outputs, grads, attrs):
    return {"values": segment_spread(grads.out, inputs.offsets, inputs.values)}


segment_sum = of.kernel(
    "example.ops::SegmentSum",
    "(values: T[n, d], offsets: I[m+1]) -> (out: T[m, d])",
    types=TYPES,
    sources=["cpu.cc"],
    reference=_reference,
    gradient=_gradient,
    doc="Row i of the result is the sum of the rows offsets[i] to offsets[i+1] - 1 of values.",
)


def _reference_spread(sums, offsets, like):
    return np.repeat(sums, np.diff(offsets), axis=0)


def _gradient_spread(inputs, outputs, grads, attrs):
    return {"sums": segment_sum(grads.out, inputs.offsets), "like": None}


segment_spread = of.kernel(
    "example.ops::SegmentSpread",
    "(sums: T[m, d], offsets: I[m+1], like: T[n, d]) -> (out: T[n, d])",
    types=TYPES,
    sources=["cpu.cc"],
    reference=_reference_spread,
    gradient=_gradient_spread,
    doc="Each row of the result is the sum of its segment; `like` only tells how many rows there are.",
)
