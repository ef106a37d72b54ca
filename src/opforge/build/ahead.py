"""Libraries built ahead: where they are looked for, and whether they still fit.

Searched are the folders of ``OPFORGE_LIBRARY_PATH`` and ``_lib`` beside the module that declares the operator and
in the packages above it (where a wheel carries it); never the working directory. A library fits when it holds
every planned operator with the same schema hash and, where the sources are at hand, was built from the same ones.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from opforge.build.cache import file_hash
from opforge.build.library import LoadedLibrary, load_library
from opforge.build.plan import LibraryPlan
from opforge.errors import OpforgeError

__all__ = ["find_built", "find_row", "search_folders", "source_hashes"]

_HEADERS = (".h", ".hh", ".hpp", ".inc", ".cuh")


def search_folders(plan: LibraryPlan) -> Iterator[Path]:
    """Give the folders in which a library of `plan` may lie, existing or not."""
    yield from _named_folders()
    folders: dict[Path, None] = {}
    for operator in plan.operators:
        if not operator.module.startswith("opforge."):
            folders.update(dict.fromkeys(_folders_of(operator.module)))
    for folder in folders:
        yield folder / "_lib"


def _named_folders() -> Iterator[Path]:
    for entry in os.environ.get("OPFORGE_LIBRARY_PATH", "").split(os.pathsep):
        if entry and Path(entry).is_absolute():
            yield Path(entry)


def _folders_of(module: str) -> Iterator[Path]:
    """Give the folder of the module and those of the packages above it."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file:
        return
    folder = Path(file).parent
    yield folder
    # A file that was loaded by its path has no packages above it, but lies in one folder per operator.
    levels = 1 if module.startswith("_opforge_") else module.count(".")
    for _ in range(levels):
        folder = folder.parent
        yield folder


def find_built(plan: LibraryPlan, device: str = "cpu") -> LoadedLibrary | None:
    """Return a library built ahead that fits `plan` and has kernels for the device."""
    needed = {operator.key: operator.schema_hash for operator in plan.operators}
    return _find(search_folders(plan), needed, source_hashes(plan), device)


def find_row(key: str, schema_hash: str, beside: Path | None, device: str) -> LoadedLibrary | None:
    """Return a library built ahead with kernels for the device of an operator that is known by its table only.

    Args:
        key: ``domain::Name:version``.
        schema_hash: of its declaration.
        beside: a folder to look in too: that of the library that the table is of.
        device: where the kernels run.
    """
    return _find([*_named_folders(), *([beside] if beside else [])], {key: schema_hash}, {}, device)


def _find(
    folders: Iterable[Path], needed: Mapping[str, str], sources: Mapping[str, str], device: str
) -> LoadedLibrary | None:
    for folder in folders:
        if not folder.is_dir():
            continue
        for path in sorted(folder.glob("*.manifest.json")):
            if not _fits(path, needed, sources, device):
                continue
            try:
                return load_library(path.with_name(path.name.removesuffix(".manifest.json") + ".so"))
            except OpforgeError as error:  # another processor or ABI: the operator may still be built here
                warnings.warn(f"a library built ahead does not serve: {error}", RuntimeWarning, stacklevel=6)
    return None


def _fits(path: Path, needed: Mapping[str, str], sources: Mapping[str, str], device: str) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = {f"{o['domain']}::{o['name']}:{o['since_version']}": o["schema_hash"] for o in content["operators"]}
        devices = {kernel["device"] for operator in content["operators"] for kernel in operator["kernels"]}
        built_from = content["sources"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if device not in devices or any(known.get(key) != schema_hash for key, schema_hash in needed.items()):
        return False
    return all(built_from.get(name) in (None, value) for name, value in sources.items())


def source_hashes(plan: LibraryPlan) -> dict[str, str]:
    """Return the hash of each kernel source at hand and of the headers beside it, as ``operator/file``."""
    hashes = {}
    for operator in plan.kernel_operators:
        present = [source for source in operator.sources if source.is_file()]
        headers = {path for s in present for path in s.parent.iterdir() if path.suffix in _HEADERS}
        hashes.update({f"{operator.key}/{path.name}": file_hash(path) for path in [*present, *sorted(headers)]})
    return hashes
