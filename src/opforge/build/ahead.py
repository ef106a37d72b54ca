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
from collections.abc import Iterator
from pathlib import Path

from opforge.build.cache import file_hash
from opforge.build.library import LoadedLibrary, load_library
from opforge.build.plan import LibraryPlan
from opforge.errors import OpforgeError

__all__ = ["find_built", "search_folders", "source_hashes"]

_HEADERS = (".h", ".hh", ".hpp", ".inc", ".cuh")


def search_folders(plan: LibraryPlan) -> Iterator[Path]:
    """Give the folders in which a library of `plan` may lie, existing or not."""
    for entry in os.environ.get("OPFORGE_LIBRARY_PATH", "").split(os.pathsep):
        if entry and Path(entry).is_absolute():
            yield Path(entry)
    folders: dict[Path, None] = {}
    for operator in plan.operators:
        if not operator.module.startswith("opforge."):
            folders.update(dict.fromkeys(_folders_of(operator.module)))
    for folder in folders:
        yield folder / "_lib"


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


def find_built(plan: LibraryPlan) -> LoadedLibrary | None:
    """Return a library built ahead that fits `plan`."""
    for folder in search_folders(plan):
        if not folder.is_dir():
            continue
        for path in sorted(folder.glob("*.manifest.json")):
            if not _fits(path, plan):
                continue
            try:
                return load_library(path.with_name(path.name.removesuffix(".manifest.json") + ".so"))
            except OpforgeError as error:  # another processor or ABI: the operator may still be built here
                warnings.warn(f"a library built ahead does not serve: {error}", RuntimeWarning, stacklevel=5)
    return None


def _fits(path: Path, plan: LibraryPlan) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = {f"{o['domain']}::{o['name']}:{o['since_version']}": o["schema_hash"] for o in content["operators"]}
        sources = content["sources"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if any(known.get(operator.key) != operator.schema_hash for operator in plan.operators):
        return False
    return all(sources.get(name) in (None, value) for name, value in source_hashes(plan).items())


def source_hashes(plan: LibraryPlan) -> dict[str, str]:
    """Return the hash of each kernel source at hand and of the headers beside it, as ``operator/file``."""
    hashes = {}
    for operator in plan.kernel_operators:
        present = [source for source in operator.sources if source.is_file()]
        headers = {path for s in present for path in s.parent.iterdir() if path.suffix in _HEADERS}
        hashes.update({f"{operator.key}/{path.name}": file_hash(path) for path in [*present, *sorted(headers)]})
    return hashes
