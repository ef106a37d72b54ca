"""The operators of `planted_kernels.py`, compiled once for all tests of this folder."""

import pytest

import opforge as of
from opforge.build import library_for
from tests.unit.verify import planted_kernels
from tests.unit.verify.faulty import forget


@pytest.fixture(scope="package")
def planted(tmp_path_factory):
    """Return the operators by name."""
    folder = planted_kernels.write(tmp_path_factory.mktemp("planted") / "op")
    operators = {operator.name: operator for operator in of.load(folder)}
    library_for(list(operators.values()))
    yield operators
    forget(operators["Blind"])
