"""Public means in __all__: every public name resolves, carries a docstring, and no submodule hides one."""

import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import opforge

ROOT = Path(opforge.__file__).parent
HOSTS = {"torch", "tensorflow", "jax", "onnxruntime", "openvino"}


def modules():
    """Names of all modules, from their files: finding them imports nothing."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(("opforge", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        if "._lib" not in name and not name.startswith("opforge.ops.") and not name.endswith("__main__"):
            found.append(name)
    return found


def absent(name):
    """The framework that a module needs and that is not installed."""
    return next((part for part in name.split(".") if part in HOSTS and find_spec(part) is None), None)


def with_omissions(names):
    """Parameters for names; modules and facades of a framework that is not installed are left out with the reason."""
    hosts = {name: absent(name) for name in names}
    return [pytest.param(n, marks=pytest.mark.skip(f"{h} is not installed") if h else []) for n, h in hosts.items()]


@pytest.mark.parametrize("name", with_omissions(n for n in opforge.__all__ if n != "__version__"))
def test_public_name_resolves(name):
    assert getattr(opforge, name) is not None


def test_importing_every_submodule_keeps_every_public_name():
    code = (
        "import importlib, opforge\n"
        f"for name in {[n for n in modules() if not absent(n)]!r}: importlib.import_module(name)\n"
        f"for name in {[n for n in opforge.__all__ if not absent(n)]!r}:\n"
        "    value = getattr(opforge, name)\n"
        "    hidden = name in opforge._NAMES and type(value).__name__ == 'module'\n"
        "    assert not hidden, f'{name} is hidden by a module'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", with_omissions(modules()))
def test_all_is_true(name):
    module = importlib.import_module(name)
    for public in (n for n in getattr(module, "__all__", []) if not absent(n)):
        assert hasattr(module, public), f"{name}.__all__ names {public}, which it does not define"


@pytest.mark.parametrize("name", [n for n in opforge._NAMES if n not in {"pi", "e", "inf"}])
def test_public_names_are_documented(name):
    assert getattr(opforge, name).__doc__ or type(getattr(opforge, name)).__doc__
