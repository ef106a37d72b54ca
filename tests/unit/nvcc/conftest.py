"""CUDA's compilers are in no environment of `make test`: `make cuda` installs them apart and runs this folder."""

import pytest

from opforge.build.cuda.toolkit import find_toolkit, toolkit_candidates

_INSTALLED = any(found == "the packages of this environment" for found, _ in toolkit_candidates())
collect_ignore_glob = [] if _INSTALLED else ["test_*.py"]


@pytest.fixture(scope="session")
def toolkit():
    """The one that was installed."""
    it = find_toolkit()
    assert it.found == "the packages of this environment"
    return it


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache for the session: what one test builds another takes."""
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("OPFORGE_JIT", raising=False)
