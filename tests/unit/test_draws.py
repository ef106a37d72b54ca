"""What a test draws does not depend on the tests before it: tests/conftest.py."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.soak import FACTOR

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(17)


@pytest.mark.parametrize("time", ["first", "second"])
def test_generators_begin_anew(time):
    assert RNG.random() == np.random.default_rng(17).random()
    assert random.random() == random.Random(0).random()
    assert np.random.random() == np.random.RandomState(0).random()
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(0)))


@given(st.integers())
def test_hypothesis_draws_the_same_and_has_no_clock(_):
    assert settings.default.derandomize == (FACTOR == 1)
    assert settings.default.deadline is None
