"""How commands name things: operators, packages, modules with a factory, shapes, tensors."""

from __future__ import annotations

import importlib
import importlib.util
import random
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from opforge._sources import spec_of_file
from opforge.errors import ArgumentError
from opforge.schema import Operator, load
from opforge.schema.author import author_code
from opforge.schema.registry import nearest

__all__ = [
    "author_code",
    "call_factory",
    "load_factory",
    "load_operators",
    "load_packages",
    "load_value",
    "parse_inputs",
    "parse_pairs",
    "parse_ranges",
    "parse_seconds",
    "parse_sizes",
    "parse_tolerances",
    "parse_values",
    "split_target",
]

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def split_target(target: str) -> tuple[str, str | None]:
    """Split ``WHERE:NAME``; NAME is None where there is none."""
    where, colon, name = target.rpartition(":")
    return (where, name) if colon and where else (target, None)


def load_operators(target: str) -> list[Operator]:
    """Return the operators of a package, folder or file, or the one that ``:Name`` picks."""
    with author_code("the operator package does not load", target):
        return list(load(target))


def load_packages(packages: Iterable[str]) -> None:
    """Register the operators of each ``--package``."""
    for package in packages:
        load_operators(package)


def load_factory(target: str) -> Callable[..., Any]:
    """Import ``module.py:factory`` or ``package.module:factory``."""
    factory = load_value(target)
    if not callable(factory):
        where, name = split_target(target)
        raise ArgumentError(f"{name} is no function", where=where, got=type(factory).__name__)
    found: Callable[..., Any] = factory
    return found


def call_factory(factory: Callable[..., Any], target: str) -> Any:  # noqa: ANN401 - whatever it makes
    """Call a factory with the seeds of random, NumPy and PyTorch at 0.

    A module whose weights are drawn is then the same one in every command: `compare --torch` holds one against what
    `export` wrote in another process.

    Raises:
        ArgumentError: the factory raises.
    """
    random.seed(0)
    np.random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
    with author_code("the factory fails", target):
        return factory()


def load_value(target: str) -> Any:  # noqa: ANN401 - whatever the module holds
    """Import ``module.py:name`` or ``package.module:name``."""
    where, name = split_target(target)
    if name is None:
        raise ArgumentError(
            "the factory's name is missing", where=target, expected="module.py:factory or package.module:factory"
        )
    with author_code("the module does not load", where):
        module = _import(where)
    if not hasattr(module, name):
        names = [
            n
            for n, value in vars(module).items()
            if not n.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
        ]
        near = nearest(name, names)
        raise ArgumentError(
            f"there is no {name} in this module",
            where=where,
            expected=f"one of {', '.join(names)}" if names else "a function that returns (module, example inputs)",
            hint=f"did you mean {near}?" if near else None,
        )
    return getattr(module, name)


def _import(where: str) -> Any:  # noqa: ANN401 - a module
    path = Path(where)
    if path.suffix != ".py":
        sys.path.insert(0, "")
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as problem:
            if problem.name is None or not (where == problem.name or where.startswith(f"{problem.name}.")):
                raise
            hint = f"write {where}.py:factory for a file" if Path(f"{where}.py").is_file() else None
            raise ArgumentError("there is no such module", where=where, hint=hint) from problem
        finally:
            sys.path.remove("")
    if not path.is_file():
        raise ArgumentError("there is no such file", where=str(path))
    spec = spec_of_file(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError("not an importable Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    # The file's neighbours are importable, as when Python runs it as a script; also later, inside functions.
    sys.path.insert(0, str(path.resolve().parent))
    spec.loader.exec_module(module)
    return module


def parse_pairs(words: Iterable[str], example: str) -> dict[str, str]:
    """Parse ``NAME=VALUE`` words."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ArgumentError("this is no assignment", got=repr(word), expected=f"NAME=VALUE, e.g. {example}")
        if name in pairs:
            raise ArgumentError(f"{name} is given twice", got=", ".join(words))
        pairs[name] = value
    return pairs


def parse_sizes(words: Iterable[str]) -> dict[str, int]:
    """Parse ``N=4`` words: values of named dimensions."""
    sizes = {}
    for name, value in parse_pairs(words, "--size N=4").items():
        if not value.isdigit():
            raise ArgumentError(
                f"the size of {name} is no number from 0 on", got=repr(value), expected="e.g. --size N=4"
            )
        sizes[name] = int(value)
    return sizes


def parse_seconds(text: str, option: str) -> float:
    """Parse a time such as ``30``, ``90s``, ``5m`` or ``2h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise ArgumentError("this is no time", where=option, expected="such as 30, 90s, 5m or 2h", got=repr(text))
    return float(match[1]) * _UNITS[match[2]]


def parse_values(words: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=TEXT`` words; ``TEXT`` alone is for every input, under ``*``."""
    return parse_pairs((word if "=" in word else f"*={word}" for word in words), "--values x=normal")


def parse_ranges(words: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Parse ``NAME=LOW:HIGH`` words; ``LOW:HIGH`` alone is for every input, under ``*``."""
    return {n: _two(text, ":", f"the range of {n}", "e.g. --range x=-1:1") for n, text in parse_values(words).items()}


def parse_tolerances(words: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Parse ``NAME=RTOL,ATOL`` words."""
    example = "--tolerance float16=1e-2,1e-3"
    pairs = parse_pairs(words, example)
    return {name: _two(text, ",", f"the tolerance of {name}", f"e.g. {example}") for name, text in pairs.items()}


def _two(text: str, separator: str, what: str, example: str) -> tuple[float, float]:
    first, found, second = text.partition(separator)
    try:
        if found:
            return float(first), float(second)
    except ValueError:
        pass
    raise ArgumentError(f"{what} is no two numbers", got=repr(text), expected=example)


def parse_inputs(words: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Read ``name=file.npy`` words; nothing is unpickled."""
    arrays = {}
    for name, file in parse_pairs(words, "--input x=x.npy").items():
        if not Path(file).is_file():
            raise ArgumentError("there is no such file", where=f"input {name!r}", got=file)
        try:
            arrays[name] = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError, BadZipFile) as problem:
            raise ArgumentError(
                "not an array file", where=f"input {name!r}", expected=".npy", got=str(problem)
            ) from None
        if not isinstance(arrays[name], np.ndarray):
            raise ArgumentError("this holds several arrays", where=f"input {name!r}", got=file, hint="use --npz")
    return arrays
