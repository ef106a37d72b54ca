"""Loading of operator packages: by name, folder, file or entry point."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import sys
import threading
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from opforge._files import require_utf8
from opforge._sources import spec_of_file
from opforge.errors import ArgumentError, MissingOperatorError
from opforge.schema import registry
from opforge.schema.operator import Operator

__all__ = ["ENTRY_POINTS", "discover", "load"]

ENTRY_POINTS: Final = "opforge.operators"
_OWN_PACKAGE: Final = "opforge.ops"

_lock = threading.RLock()
_discovered: list[Operator] | None = None
_given: dict[frozenset[str], list[Operator]] = {}  # names of modules -> operators that loading them gave


def load(package_or_path: str | Path) -> list[Operator]:
    """Load an operator package and give its operators, without gradient operators, in the order of declaration.

    Args:
        package_or_path: an importable package or module, a folder (with ``op.py``, with folders that have one, or
            a Python package), a ``.py`` file, or any of these followed by ``:Operator``, the name of one operator.

    Raises:
        ArgumentError: no such package or file, or it declares no operators.
        MissingOperatorError: the named operator is not among them.
    """
    text = str(package_or_path)
    target, wanted = _split(text)
    if not target.strip():  # an empty path would be the working directory
        raise ArgumentError(
            "no package is named", where="load", expected="a package, a folder or a .py file", got=repr(text)
        )
    with _lock, registry.registering() as collected:
        modules = _load_path(Path(target)) if _is_path(target) else _load_package(target)
    names = {module.__name__ for module in modules}
    found = list(collected)
    # Modules that were imported before do not register again.
    for operator in registry.operators(gradients=True, all_versions=True).values():
        if operator not in found and any(operator.module == n or operator.module.startswith(f"{n}.") for n in names):
            found.append(operator)
    found = [operator for operator in found if not operator.is_gradient]
    # A copy of a file declares operators that belong to the module of the first one: what it gave is remembered.
    if found:
        _given[frozenset(names)] = found
    else:
        earlier = _given.get(frozenset(names), [])
        found = [o for o in earlier if o.since_version in registry.versions(o.domain, o.name)]
    if not found:
        raise ArgumentError(
            "no operators are declared there",
            where=text,
            expected="a module that uses opforge.formula or opforge.kernel",
            got=", ".join(sorted(names)) or "no Python files",
        )
    if wanted:
        chosen = [o for o in found if wanted in (o.name, o.qualified_name, o.host_name)]
        if not chosen:
            close = registry.nearest(wanted, [o.name for o in found])
            raise MissingOperatorError(
                "the package has no such operator",
                where=target,
                expected=", ".join(o.name for o in found),
                got=wanted,
                hint=f"did you mean {close}?" if close else None,
            )
        return chosen
    return found


def discover(*, again: bool = False) -> list[Operator]:
    """Load opforge's own operators and those of installed packages (entry points of group ``opforge.operators``).

    A package that fails to load is warned about by name and leaves the others alone. Later calls give what the
    first one found.

    Args:
        again: look anew, e.g. after installing a package.
    """
    global _discovered
    with _lock:
        if _discovered is not None and not again:
            return list(_discovered)
        _discovered = []
        targets = {_OWN_PACKAGE: "opforge"} if importlib.util.find_spec(_OWN_PACKAGE) else {}
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            targets.setdefault(entry.value.partition(":")[0].strip(), entry.name)
        for target, name in targets.items():
            try:
                _discovered += [operator for operator in load(target) if operator not in _discovered]
            except Exception as error:  # a broken package of somebody else must not take the others down
                reason = f"{type(error).__name__}: {error}"
                message = f"entry point {name!r} of group {ENTRY_POINTS} ({target}) did not load: {reason}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
        return list(_discovered)


def _split(text: str) -> tuple[str, str]:
    """Split ``PACKAGE:Operator``; a colon inside a path that exists, or after a drive letter, is part of it."""
    head, colon, tail = text.rpartition(":")
    if not colon or not tail.replace(":", "").replace(".", "").isidentifier() or Path(text).exists() or len(head) == 1:
        return text, ""
    if head.endswith(":"):  # PACKAGE:domain::Name
        head, _, domain = head[:-1].rpartition(":")
        return head, f"{domain}::{tail}"
    return head, tail


def _is_path(target: str) -> bool:
    return target.endswith((".py", ".so")) or "/" in target or "\\" in target or target in (".", "..")


def _load_package(name: str) -> list[ModuleType]:
    if not all(part.isidentifier() for part in name.split(".")):
        if Path(name).exists():
            return _load_path(Path(name))
        raise ArgumentError("not a package name or an existing path", where=name)
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        # Only a missing `name` itself is the caller's mistake; a failing import inside it speaks for itself.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        if Path(name).exists():
            return _load_path(Path(name))
        raise ArgumentError(
            "no such package", where=name, expected="an importable package, a folder or a .py file", got="not found"
        ) from None
    if getattr(module, "__file__", None) is None and Path(name).is_dir():
        # A plain folder in the working directory, which Python takes for a namespace package.
        return _load_path(Path(name))
    return [module, *_submodules(module)]


def _submodules(package: ModuleType) -> list[ModuleType]:
    """Import ``op`` of a package and of each folder in it: the layout of one folder per operator."""
    names: set[str] = set()
    for place in map(Path, getattr(package, "__path__", [])):
        if (place / "op.py").is_file():
            names.add("op")
        # Folders without __init__.py count too, as they do where the whole is no package.
        folders = (file.parent.name for file in place.glob("*/op.py"))
        names |= {f"{folder}.op" for folder in folders if folder.isidentifier() and not folder.startswith("_")}
    found: list[ModuleType] = []
    for name in sorted(names, key=lambda n: n.partition(".")[0]):
        found.append(import_module(f"{package.__name__}.{name}"))
    return found


def _load_path(path: Path) -> list[ModuleType]:
    if not path.exists():
        raise ArgumentError("no such file or folder", where=str(path))
    path = path.resolve()
    require_utf8(str(path))
    if not path.is_dir():
        if path.suffix != ".py":
            raise ArgumentError("not a Python file", where=str(path), expected="a .py file", got=path.name)
        return [_import_file(path)]
    if (path / "__init__.py").exists():
        module = _import_file(path / "__init__.py")
        return [module, *_submodules(module)]
    if (path / "op.py").exists():
        return [_import_file(path / "op.py")]
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))
    operators = [folder / "op.py" for folder in folders if (folder / "op.py").exists()]
    if operators:
        return [_import_file(file) for file in operators]
    # A project folder: its packages lie beside pyproject.toml or in src/.
    source = path / "src" if (path / "src").is_dir() else path
    packages = sorted(p for p in source.iterdir() if (p / "__init__.py").exists() and p.name != "tests")
    # They are imported by their own names, as after an installation, so that their modules can import each other.
    sys.path.insert(0, str(source))
    try:
        return [module for package in packages for module in _load_package(package.name)]
    finally:
        sys.path.remove(str(source))


def _import_file(path: Path) -> ModuleType:
    """Import a file under a name made of its place, once; a package's own modules can import each other."""
    stem = path.parent.name if path.name in ("op.py", "__init__.py") else path.stem
    for module in list(sys.modules.values()):
        # The same file may already be imported as part of a package that is on the path.
        if getattr(module, "__file__", None) == str(path) and module.__name__ != "__main__":
            return module
    place = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"_opforge_{''.join(c if c.isalnum() else '_' for c in stem)}_{place}"
    search = [str(path.parent)] if path.name == "__init__.py" else None
    spec = spec_of_file(name, path, search)
    if spec is None or spec.loader is None:
        raise ArgumentError("not an importable Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
