"""How commands name things: operators, packages, modules with a factory, shapes, tensors."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from opforge.errors import ArgumentError
from opforge.schema import Operator, load

__all__ = ["load_factory", "load_operators", "load_packages", "parse_inputs", "parse_sizes", "split_target"]


def split_target(target: str) -> tuple[str, str | None]:
    """Split ``WHERE:NAME``; NAME is None where there is none."""
    where, colon, name = target.rpartition(":")
    return (where, name) if colon and where else (target, None)


def load_operators(target: str) -> list[Operator]:
    """Return the operators of a package, folder or file, or the one that ``:Name`` picks."""
    return list(load(target))


def load_packages(packages: Iterable[str]) -> None:
    """Register the operators of each ``--package``."""
    for package in packages:
        load(package)


def load_factory(target: str) -> Callable[..., Any]:
    """Import ``module.py:factory`` or ``package.module:factory``."""
    where, name = split_target(target)
    if name is None:
        raise ArgumentError("the factory's name is missing", where=target, expected="module.py:factory or package.module:factory")
    path = Path(where)
    if path.suffix == ".py":
        if not path.is_file():
            raise ArgumentError("there is no such file", where=str(path))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        sys.path.insert(0, str(path.resolve().parent))
        try:
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(path.resolve().parent))
    else:
        sys.path.insert(0, "")
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as problem:
            raise ArgumentError(f"cannot import {where}", where=target, got=str(problem)) from problem
        finally:
            sys.path.remove("")
    if not hasattr(module, name):
        names = [n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n))]
        raise ArgumentError(f"{where} has no {name}", where=target, expected=f"one of {', '.join(names) or 'nothing callable'}")
    factory: Callable[..., Any] = getattr(module, name)
    return factory


def parse_sizes(words: Iterable[str]) -> dict[str, int]:
    """Parse ``N=4`` words: values of named dimensions."""
    sizes = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value.isdigit():
            raise ArgumentError("this is no dimension", got=repr(word), expected="NAME=NUMBER, e.g. --size N=4")
        sizes[name] = int(value)
    return sizes


def parse_inputs(words: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Read ``name=file.npy`` words; nothing is unpickled."""
    arrays = {}
    for word in words:
        name, equals, file = word.partition("=")
        if not equals:
            raise ArgumentError("this is no input", got=repr(word), expected="NAME=FILE.npy")
        arrays[name] = np.load(file, allow_pickle=False)
    return arrays
