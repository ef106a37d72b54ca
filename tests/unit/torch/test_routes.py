"""Run the tests of the PyTorch host on both routes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@pytest.fixture(scope="session")
def accelerator() -> Path:
    """Build the accelerator once; the build cache keeps it."""
    from opforge.frameworks.torch import build_accelerator

    return build_accelerator()


def run(route: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(HERE)]
    command.append(str(ROOT / "tests" / "conformance" / "torch"))
    environment = {**os.environ, "OPFORGE_TORCH_ROUTE": route, "OPFORGE_TORCH_BUILD": "off"}
    for name in list(environment):
        if name.startswith("PYTEST_"):
            del environment[name]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-12000:]}\n{done.stderr[-2000:]}"


@pytest.mark.torch
def test_stable_route() -> None:
    run("stable")


@pytest.mark.torch
@pytest.mark.compiler
def test_accelerator_route(accelerator: Path) -> None:
    assert accelerator.is_file()
    run("accelerator")
