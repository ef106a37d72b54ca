"""Finds an operator again in another process: by the module or file that declares it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path

from opforge.errors import UnsupportedError
from opforge.schema import Operator, load, registry

__all__ = [
    "Declared",
    "UndeclaredError",
    "declaration_of",
    "declare",
    "declare_all",
    "import_paths",
    "stop_if_declaring",
    "target_of",
]

Declared = tuple[str, str, str, int, str]
"""What `declare` takes: target, domain, name, version, schema hash."""

_declaring = False


class UndeclaredError(UnsupportedError):
    """No other process can declare an operator."""


class _ReachedError(BaseException):
    """A script that is loaded for what it declares came to the call that it is loaded for."""


def target_of(operator: Operator) -> str:
    """Return what `opforge.load` takes to declare the operator in another process.

    Raises:
        UndeclaredError: it is declared where no other process can find it, such as in a notebook.
    """
    name = operator.module
    if name == "__main__":  # python -m has a name, a script a file
        name = getattr(getattr(sys.modules[name], "__spec__", None), "name", None) or name
    if _importable(name):
        return name
    root = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None) or ""
    if name != "__main__" and Path(root).name == "__init__.py":  # its modules import each other
        return str(Path(root).resolve().parent)
    file = operator.declared_at.rpartition(":")[0]
    if not Path(file).is_file():
        raise _undeclared(operator.qualified_name, operator.declared_at or "none", "move the declaration to a .py file")
    return str(Path(file).resolve())


def declaration_of(operator: Operator) -> Declared:
    """Return what another process needs to declare the operator again.

    Raises:
        UndeclaredError: no other process can declare it.
    """
    return target_of(operator), operator.domain, operator.name, operator.since_version, operator.schema_hash


def declare_all(declared: Iterable[Declared]) -> None:
    """Declare operators that are not declared here yet.

    Raises:
        UndeclaredError: one is not declared where it should be, or as another one.
    """
    for target, domain, name, version, schema_hash in declared:
        found = registry.find(domain, name, version)
        if found is None or found.schema_hash != schema_hash:
            declare(target, domain, name, version, schema_hash)


def _importable(name: str) -> bool:
    """Whether importing a name gives the module that has it here; files are loaded under names of their own."""
    top = name.partition(".")[0]
    if top == "__main__":
        return False
    here = getattr(sys.modules.get(top), "__spec__", None)
    found = PathFinder.find_spec(top)
    return here is not None and found is not None and here.origin == found.origin


def import_paths() -> str:
    """Return ``PYTHONPATH`` of a process that finds the modules that this one finds."""
    return os.pathsep.join(path or str(Path.cwd()) for path in sys.path)


def declare(target: str, domain: str, name: str, version: int, schema_hash: str | None = None) -> Operator:
    """Load what declares an operator and return it; what a script does from its first check on is not done.

    Args:
        target: as `target_of` gives it.
        domain: the operator's.
        name: the operator's, or that of a gradient operator.
        version: its since_version.
        schema_hash: of the declaration that is meant.

    Raises:
        UndeclaredError: the operator is not declared there, or as another one.
    """
    global _declaring
    key = f"{domain}::{name}"
    _declaring = True
    try:
        load(target)
    except _ReachedError:
        pass
    except Exception as problem:
        raise _undeclared(key, f"{target}: {type(problem).__name__}: {problem}", _HINT) from problem
    finally:
        _declaring = False
    found = registry.find(domain, name, version)
    if found is None or found.since_version != version:
        raise _undeclared(key, f"loading {target} does not declare it", _HINT)
    if schema_hash not in (None, found.schema_hash):
        raise _undeclared(key, f"{target} has changed since it was loaded", "start a new process")
    return found


_HINT = "declare operators at the top level of a module"


def _undeclared(name: str, got: str, hint: str) -> UndeclaredError:
    return UndeclaredError(
        "another process cannot declare the operator",
        where=name,
        expected="a declaration in a file",
        got=got,
        hint=hint,
    )


def stop_if_declaring() -> None:
    """End the loading of a script that comes to a check while it is loaded for one."""
    if _declaring:
        raise _ReachedError
