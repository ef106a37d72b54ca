"""Checks of whole models: an .onnx file against the registry, a .bin against itself and its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.errors import ArgumentError, OpforgeError
from opforge.verify._announced import announce
from opforge.verify._engines import REFERENCE, default_engines, engines, find_engine
from opforge.verify._inputs import flat_values, random_inputs
from opforge.verify._rows import Row, same_bits
from opforge.verify.comparison import Comparison, compare
from opforge.verify.levels import Level

if TYPE_CHECKING:
    import onnx

    from opforge.bin.session import Session

__all__ = ["bin_rows", "onnx_rows"]

_RUNS = 3


def onnx_rows(path: Path, model: onnx.ModelProto, level: Level, seed: int) -> Iterator[Row]:
    """Domains, imports and nodes; shapes; which engines take the model; opforge's outputs against another's."""
    from opforge.onnx import check_model

    problems = check_model(model)
    for problem in problems:
        yield Row("registry", "", "", "", False, str(problem))
    if problems:
        return
    yield Row("registry", "", "", "", True)
    contradiction = _contradiction(model)
    if contradiction:
        yield Row("shapes", "", "", "", False, contradiction)
        return
    yield Row("shapes", "", "", "", True)
    if level.engines:
        yield from _support(path)
    if level.name != "quick":
        engines_of = default_engines(path)
        yield from _parity(lambda: compare(path, engines=engines_of, seed=seed), engines_of)


def _contradiction(model: onnx.ModelProto) -> str:
    """What the inference of shapes objects to; nothing where the model is consistent."""
    from opforge.onnx import infer_shapes

    try:
        infer_shapes(model)
    except OpforgeError as problem:
        return str(problem)
    return ""


def _support(path: Path) -> Iterator[Row]:
    """Load the model in each engine that is here; what an engine cannot is a note, but opforge has to."""
    for name, engine in engines().items():
        if name == REFERENCE or not engine.availability().ok:
            continue
        announce("support", "", name)
        try:
            find_engine(name).load(path)
        except OpforgeError as problem:
            own = name == "opforge"
            yield Row("support", "", name, "", not own, str(problem) if own else f"{name} does not run it: {problem}")
        else:
            yield Row("support", "", name, "", True)


def _parity(comparison: Callable[[], Comparison], between: Iterable[str]) -> Iterator[Row]:
    announce("parity", "random inputs", " and ".join(between))
    try:
        result = comparison()
    except ArgumentError as problem:
        # Only the author knows which values such a model takes (indices, sizes); that is no fault of it.
        hint = "not compared, the model does not take random inputs; opforge compare --npz FILE compares given ones"
        yield Row("parity", "random inputs", "", "", True, f"{hint}: {problem}")
        return
    for row in result.rows:
        detail = "" if row.passed else f"against {result.reference}: {row.detail}"
        yield Row("parity", row.output, row.engine, "", row.passed, detail)


def bin_rows(path: Path, model: Path | None, seed: int) -> Iterator[Row]:
    """Every byte of the file, its operators and libraries, equal bits over runs, and its model's outputs."""
    from opforge.bin.libraries import libraries_of
    from opforge.bin.session import Session

    try:
        libraries = libraries_of(path, search=True)
        session = Session(path, verify="full", libraries=libraries)
    except OpforgeError as problem:
        yield Row("structure", "", "", "", False, str(problem))
        return
    yield Row("structure", "header, sections, program, checksums of the weights", "", "", True)
    loaded = find_engine("opforge").load(path)
    announce("runs", "random inputs", "opforge")
    try:
        inputs = random_inputs(loaded.inputs, seed=seed)
        first = flat_values(session.run(inputs))
    except OpforgeError as problem:
        # Only the author knows which values such a model takes (indices, sizes); that is no fault of it.
        text = "not run, the model does not take random inputs; opforge run takes given ones"
        yield Row("runs", "random inputs", "opforge", "", True, f"{text}: {problem}")
    else:
        yield from _stable(path, session, libraries, inputs, first)
    if model is not None:
        both: Mapping[str, Path] = {"opforge": path, default_engines(model)[1]: model}
        yield from _parity(lambda: compare(model, engines=both, seed=seed), both)


def _stable(
    path: Path, session: Session, libraries: list[Path], inputs: Mapping[str, Any], first: Mapping[str, Any]
) -> Iterator[Row]:
    """Equal bits when run again, on one thread, and without reuse of memory."""
    from opforge.bin.session import Session

    others = {
        f"run {_RUNS} times": session,
        "one thread": Session(path, threads=1, libraries=libraries),
        "memory of its own for each value": Session(path, reuse=False, libraries=libraries),
    }
    for name, other in others.items():
        found = ""
        announce("runs", name, "opforge")
        for _ in range(_RUNS if other is session else 1):
            again = flat_values(other.run(inputs))
            for output, expected in first.items():
                text = same_bits([expected], [again[output]]) if expected.dtype.kind != "O" else ""
                found = found or (f"output {output}: {text.removeprefix('output 0 ')}" if text else "")
        yield Row("runs", name, "opforge", "", not found, found)
