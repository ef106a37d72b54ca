"""Public means in __all__: every public name resolves, carries a docstring, and no submodule hides one."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import opforge

HOST_MODULES = {"opforge.torch"}


def modules():
    found = []
    for info in pkgutil.walk_packages(opforge.__path__, "opforge."):
        if "._lib" not in info.name and not info.name.startswith("opforge.ops."):
            found.append(info.name)
    return found


@pytest.mark.parametrize("name", [n for n in opforge.__all__ if n != "__version__"])
def test_public_name_resolves(name):
    assert getattr(opforge, name) is not None


def test_importing_every_submodule_keeps_every_public_name():
    code = (
        "import importlib, opforge\n"
        f"for name in {modules()!r}: importlib.import_module(name)\n"
        "for name in opforge.__all__:\n"
        "    value = getattr(opforge, name)\n"
        "    hidden = name in opforge._NAMES and type(value).__name__ == 'module'\n"
        "    assert not hidden, f'{name} is hidden by a module'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", modules())
def test_all_is_true(name):
    module = importlib.import_module(name)
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public), f"{name}.__all__ names {public}, which it does not define"


@pytest.mark.parametrize("name", [n for n in opforge._NAMES if n not in {"pi", "e", "inf"}])
def test_public_names_are_documented(name):
    assert getattr(opforge, name).__doc__ or type(getattr(opforge, name)).__doc__
