"""Every test draws the same numbers, whatever ran before it and in whichever process, and hears an interrupt."""

import random
import signal
import sys

import numpy as np
import pytest

from tests.soak import FACTOR

try:
    import hypothesis
except ImportError:  # the tests on a GPU need none
    pass
else:
    # Fixed examples, and no verdict by the clock; make soak draws others.
    hypothesis.settings.register_profile(
        "suite",
        deadline=None,
        derandomize=FACTOR == 1,
        database=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("suite")

# A shell's background jobs ignore it, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

_began: list[tuple[np.random.Generator, dict]] = []


def pytest_collection_modifyitems(items):
    """Begin with what takes long, so that no process works alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish():
    """Keep the states of generators that modules share among their tests."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("tests.", "benchmarks.")):
            found = [value for value in vars(module).values() if isinstance(value, np.random.Generator)]
            _began.extend((generator, generator.bit_generator.state) for generator in found)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Begin all generators anew."""
    for generator, state in _began:
        generator.bit_generator.state = state
    random.seed(0)
    np.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)  # it begins with another seed in each process
