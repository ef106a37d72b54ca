"""SavedModels with operators of ours: the manifest beside the model, and loading by it."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from opforge.build import LoadedLibrary, library_for, load_library
from opforge.errors import ArgumentError, Candidate, CandidateError, CorruptFileError, OpforgeError
from opforge.frameworks.tensorflow._calls import register_library
from opforge.frameworks.tensorflow._entries import all_entries, find_entry
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
    entries = [entry for entry in all_entries() if entry.name in names]
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
    draft = target.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"format": _FORMAT, "operators": rows}, indent=1) + "\n", encoding="utf-8")
    draft.replace(target)
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
        wanted = _read(manifest)
        _register(wanted, libraries)
    return tf.saved_model.load(str(folder), **options)


def _operations(folder: Path) -> set[str]:
    file = folder / "saved_model.pb"
    if not file.is_file():
        raise ArgumentError("there is no SavedModel", where=str(folder), expected="a folder with saved_model.pb")
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    nodes = [node for graph in model.meta_graphs for node in graph.graph_def.node]
    nodes += [n for graph in model.meta_graphs for f in graph.graph_def.library.function for n in f.node_def]
    return {node.op for node in nodes}


def _read(manifest: Path) -> dict[str, str]:
    """Return key -> schema hash."""
    try:
        content = json.loads(manifest.read_text(encoding="utf-8"))
        if content["format"] != _FORMAT:
            raise ValueError(f"format {content['format']}")
        return {str(row["key"]): str(row["schema_hash"]) for row in content["operators"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            "the manifest cannot be read", where=str(manifest), got=f"{type(error).__name__}: {error}"
        ) from error


def _register(wanted: dict[str, str], libraries: Sequence[str | os.PathLike[str]]) -> None:
    looked: list[Candidate] = []
    missing = {key: value for key, value in wanted.items() if not _is_here(key, value, looked)}
    for key in list(missing):  # gradient operators come with the operator that they belong to
        if key in missing and _declared(key, missing[key]):
            missing = {k: v for k, v in missing.items() if not _is_here(k, v, looked)}
    folders = [*map(Path, libraries), *_library_path()]
    for library in _libraries(folders, looked):
        offers = {operator.key: operator.schema_hash for operator in library.operators.values()}
        if any(offers.get(key) == value for key, value in missing.items()):
            register_library(library)
            missing = {k: v for k, v in missing.items() if not _is_here(k, v, looked)}
    if missing:
        discover()
        for key in list(missing):
            if key in missing and _declared(key, missing[key]):
                missing = {k: v for k, v in missing.items() if not _is_here(k, v, looked)}
    if missing:
        looked += [Candidate(str(folder), "holds no library with it") for folder in folders]
        looked.append(Candidate("installed packages", "none of the group opforge.operators declares it"))
        raise CandidateError(
            "operators of the SavedModel are not here",
            looked,
            where=", ".join(sorted(missing)),
            hint="import the package that declares them, or name its library in libraries= or OPFORGE_LIBRARY_PATH",
        )


def _is_here(key: str, schema_hash: str, looked: list[Candidate]) -> bool:
    entry = find_entry(key)
    if entry is not None and entry.library.schema_hash != schema_hash:
        looked.append(Candidate("this process", f"{key} is registered with another declaration"))
    return entry is not None and entry.library.schema_hash == schema_hash


def _declared(key: str, schema_hash: str) -> bool:
    """Build and register the declared operator that the key, or the gradient operator of the key, belongs to."""
    name, _, version = key.rpartition(":")
    domain, _, short = name.partition("::")
    while short:
        operator = registry.find(domain, short, int(version))
        if operator is not None and not operator.is_gradient:
            library = library_for([operator])
            if any(o.key == key and o.schema_hash == schema_hash for o in library.operators.values()):
                register_library(library)
                return True
            return False
        if not short.endswith("Grad"):
            return False
        short = short.removesuffix("Grad")
    return False


def _library_path() -> list[Path]:
    return [Path(p) for p in os.environ.get("OPFORGE_LIBRARY_PATH", "").split(os.pathsep) if p]


def _libraries(places: Iterable[Path], looked: list[Candidate]) -> Iterable[LoadedLibrary]:
    for place in places:
        for file in sorted(place.glob("*.so")) if place.is_dir() else [place]:
            try:
                yield load_library(file)
            except OpforgeError as error:
                looked.append(Candidate(str(file), str(error).splitlines()[0]))
