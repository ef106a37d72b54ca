"""A kernel that asks for more than PyTorch's allocator gives gets its addresses."""

import pytest
import torch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_addresses_are_what_the_kernel_asks_for(hand, size):
    whole = torch.arange(2.0 * size + 2)
    for x in (whole[:size], whole[1 : size + 1], whole[::2][:size]):
        assert torch.equal(hand.paged(x), 2 * x)
