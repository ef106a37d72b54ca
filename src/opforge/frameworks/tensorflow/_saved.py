"""SavedModels with operators of ours: the manifest beside the model, and loading by it."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from opforge._files import whole_file
from opforge.build import LoadedLibrary, library_for, load_library
from opforge.build.library import LibraryOperator
from opforge.errors import ArgumentError, Candidate, CandidateError, CorruptFileError, OpforgeError
from opforge.frameworks.tensorflow._calls import register_library
from opforge.frameworks.tensorflow._entries import ENTRIES
from opforge.schema import discover, registry

__all__ = ["MANIFEST", "load", "save", "write_manifest"]

MANIFEST: Final = "opforge.json"
"""File in ``assets.extra`` of a SavedModel, which TensorFlow copies and otherwise leaves alone."""

_FORMAT: Final = 1


def save(model: Any, path: str | os.PathLike[str], **options: Any) -> None:  # noqa: ANN401
    """Save a SavedModel with the manifest of the operators that it needs.

    Args:
        model: a ``tf.Module``, or a Keras model (its ``export`` writes the serving function).
        path: folder of the SavedModel.
        **options: of ``tf.saved_model.save``, or of the Keras model's ``export``.
    """
    if hasattr(model, "export") and callable(model.export) and not options.get("signatures"):
        quiet = {"verbose": False} if "verbose" in inspect.signature(model.export).parameters else {}
        model.export(os.fspath(path), format="tf_saved_model", **quiet, **options)
    else:
        tf.saved_model.save(model, os.fspath(path), **options)
    write_manifest(path)


def write_manifest(path: str | os.PathLike[str]) -> Path:
    """Write the manifest of a SavedModel that is there already.

    Operators are those of its graphs, gradient functions included, that are registered in this process.

    Raises:
        ArgumentError: the folder holds no SavedModel.
    """
    folder = Path(path)
    names = _operations(folder)
    entries = [entry for entry in ENTRIES.all() if entry.name in names]
    rows = [
        {
            "key": entry.key,
            "operation": entry.name,
            "signature": str(entry.signature),
            "schema_hash": entry.library.schema_hash,
        }
        for entry in sorted(entries, key=lambda e: e.key)
    ]
    target = folder / "assets.extra" / MANIFEST
    target.parent.mkdir(exist_ok=True)
    with whole_file(target) as draft:
        draft.write_text(json.dumps({"format": _FORMAT, "operators": rows}, indent=1) + "\n", encoding="utf-8")
    return target


def load(path: str | os.PathLike[str], *, libraries: Sequence[str | os.PathLike[str]] = (), **options: Any) -> Any:  # noqa: ANN401
    """Load a SavedModel after registering the operators that its manifest names.

    An operator is taken from, in this order: what is declared in this process, ``libraries``, the folders of
    ``OPFORGE_LIBRARY_PATH``, installed packages (entry points of the group ``opforge.operators``). Nothing that a
    manifest names is imported, and the model's folder is not searched.

    Args:
        path: folder of the SavedModel.
        libraries: kernel libraries, or folders that hold some.
        **options: of ``tf.saved_model.load``.

    Raises:
        ArgumentError: there is no SavedModel.
        CorruptFileError: the manifest cannot be read.
        CandidateError: an operator is nowhere, or only with another declaration; lists where was looked.
    """
    folder = Path(path)
    if not (folder / "saved_model.pb").is_file():
        raise ArgumentError("there is no SavedModel", where=str(folder), expected="a folder with saved_model.pb")
    manifest = folder / "assets.extra" / MANIFEST
    if manifest.is_file():
        _register(_read(manifest), libraries)
    return tf.saved_model.load(str(folder), **options)


def _operations(folder: Path) -> set[str]:
    file = folder / "saved_model.pb"
    if not file.is_file():
        raise ArgumentError("there is no SavedModel", where=str(folder), expected="a folder with saved_model.pb")
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    nodes = [node for graph in model.meta_graphs for node in graph.graph_def.node]
    nodes += [n for graph in model.meta_graphs for f in graph.graph_def.library.function for n in f.node_def]
    return {node.op for node in nodes}


@dataclass(frozen=True)
class _Wanted:
    """An operator that the manifest names."""

    key: str
    signature: str
    schema_hash: str

    def __str__(self) -> str:
        return f"{self.key} {self.signature} ({self.schema_hash[:12]})"

    @classmethod
    def of(cls, operator: LibraryOperator) -> _Wanted:
        return cls(operator.key, operator.signature, operator.schema_hash)


def _read(manifest: Path) -> list[_Wanted]:
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}")
        rows = content["operators"]
        return [_Wanted(str(row["key"]), str(row["signature"]), str(row["schema_hash"])) for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            "the manifest cannot be read", where=str(manifest), got=f"{type(error).__name__}: {error}"
        ) from error


def _register(wanted: list[_Wanted], libraries: Sequence[str | os.PathLike[str]]) -> None:
    looked: dict[tuple[str, str], Candidate] = {}

    def refuse(name: str, reason: str) -> None:
        looked.setdefault((name, reason), Candidate(name, reason))

    def absent(rows: list[_Wanted]) -> list[_Wanted]:
        """The rows that are not registered yet; gradient operators come with the operator that they belong to."""
        found = [(row, ENTRIES.find(row.key)) for row in rows]
        for row, entry in found:
            if entry is not None and entry.library.schema_hash != row.schema_hash:
                refuse("this process", f"{_Wanted.of(entry.library)} is registered with another declaration")
        return [row for row, entry in found if entry is None or entry.library.schema_hash != row.schema_hash]

    def declared(rows: list[_Wanted]) -> list[_Wanted]:
        for row in rows:
            if ENTRIES.find(row.key) is None:
                _register_declared(row, refuse)
        return absent(rows)

    missing = declared(absent(wanted))
    folders = [*map(Path, libraries), *_library_path()]
    for file, library in _libraries(folders, refuse):
        offers = {operator.key: _Wanted.of(operator) for operator in library.operators.values()}
        for row in missing:
            if row.key in offers and offers[row.key].schema_hash != row.schema_hash:
                refuse(str(file), f"holds {offers[row.key]}, another declaration")
        if any(row.key in offers and offers[row.key].schema_hash == row.schema_hash for row in missing):
            register_library(library)
            missing = absent(missing)
        ENTRIES.serve_known(library)  # another device's kernels may have come first
    if missing:
        discover()
        missing = declared(missing)
    if missing:
        for folder in folders:
            refuse(str(folder), "holds no library with it")
        refuse("installed packages", "none of the group opforge.operators declares it")
        raise CandidateError(
            "operators of the SavedModel are not here",
            list(looked.values()),
            where=", ".join(sorted(row.key for row in missing)),
            expected="".join(f"\n    {row}" for row in missing),
            hint="import the package that declares them as they were when the model was saved, or name its library in "
            "libraries= or OPFORGE_LIBRARY_PATH",
        )


def _register_declared(row: _Wanted, refuse: Callable[[str, str], None]) -> None:
    """Build and register the declared operator that the key, or the gradient operator of the key, belongs to."""
    name, _, version = row.key.rpartition(":")
    domain, _, short = name.partition("::")
    while short:
        operator = registry.find(domain, short, int(version))
        if operator is not None and not operator.is_gradient:
            library = library_for([operator])
            offers = {o.key: _Wanted.of(o) for o in library.operators.values()}
            if row.key in offers and offers[row.key].schema_hash == row.schema_hash:
                register_library(library)
            elif row.key in offers:
                refuse("this process", f"{offers[row.key]} is declared, another declaration")
            return
        if not short.endswith("Grad"):
            return
        short = short.removesuffix("Grad")


def _library_path() -> list[Path]:
    return [Path(p) for p in os.environ.get("OPFORGE_LIBRARY_PATH", "").split(os.pathsep) if p]


def _libraries(places: Iterable[Path], refuse: Callable[[str, str], None]) -> Iterable[tuple[Path, LoadedLibrary]]:
    for place in places:
        for file in sorted(place.glob("*.so")) if place.is_dir() else [place]:
            try:
                yield file, load_library(file)
            except OpforgeError as error:
                refuse(str(file), str(error).splitlines()[0])
