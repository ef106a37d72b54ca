"""PyTorch's profiler shows our operators by their names, forward and backward, with times of their own."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from opforge.ops import custom_gelu

pytestmark = pytest.mark.torch


def events(function):
    function()  # the first call compiles
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        function()
    return {event.name: event for event in watched.events()}


def test_operators_carry_their_names():
    x = torch.randn(256, 256, requires_grad=True)
    seen = events(lambda: custom_gelu(x).sum().backward())
    namespace = next(name for name in seen if name.endswith("::custom_gelu")).partition("::")[0]
    assert {"CustomGELUBackward", f"{namespace}::custom_gelu_grad"} <= set(seen), sorted(seen)
    forward = seen[f"{namespace}::custom_gelu"].time_range
    backward = seen[f"{namespace}::custom_gelu_grad"].time_range
    assert forward.elapsed_us() > 0 and forward.end <= backward.start, "each event ends when its operator does"
    outer = seen["CustomGELUBackward"].time_range
    assert outer.start <= backward.start and backward.end <= outer.end


def test_kernels_carry_their_names(hand):
    seen = events(lambda: hand.gelu(torch.randn(64)))
    assert any(name.endswith("::gelu") and not name.startswith("aten") for name in seen), sorted(seen)
