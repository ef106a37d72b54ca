"""All engines of this installation by name: the folders of ``opforge.engines`` and opforge's own runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from opforge.bin.engine import engine as opforge_engine
from opforge.engines import Engine, folder_engines
from opforge.errors import ArgumentError, Candidate, CandidateError
from opforge.onnx._read import read_model
from opforge.schema.registry import nearest

__all__ = [
    "ALL",
    "REFERENCE",
    "choose_engines",
    "default_engines",
    "engines",
    "find_engine",
    "reasons",
    "require_known",
]

ALL = "all"
"""Stands for every engine that can be used here."""
REFERENCE = "reference"


def engines() -> dict[str, Engine]:
    """Return every engine, available or not; opforge comes first."""
    return {opforge_engine.name: opforge_engine, **folder_engines()}


def find_engine(name: str) -> Engine:
    """Return one available engine by name.

    Raises:
        ArgumentError: there is no engine of that name.
        CandidateError: it is known, but cannot be used here.
    """
    require_known([name])
    known = engines()
    state = known[name].availability()
    if not state.ok:
        raise CandidateError("the engine cannot be used here", [Candidate(name, state.reason)], hint=state.hint)
    known[name].prepare()
    return known[name]


def require_known(names: Sequence[str]) -> None:
    """See that there are engines of these names, whether they can be used here or not.

    Raises:
        ArgumentError: there is none of a name; the nearest one is said.
    """
    known = engines()
    for name in names:
        if name not in known:
            near = nearest(name, [*known, ALL])
            hint = f"did you mean {near}?" if near else None
            all_of_them = f"one of {', '.join(known)}, or {ALL}"
            raise ArgumentError(f"there is no engine {name!r}", expected=all_of_them, hint=hint)


def choose_engines(names: Sequence[str], model: Path) -> tuple[list[str], dict[str, str]]:
    """Replace ``all`` among names by every engine that is here and takes such a file; ONNX's evaluator comes last.

    Returns:
        The names, and those that ``all`` leaves out, each with its reason and how to get it.
    """
    if ALL not in names:
        return list(names), {}
    chosen, skipped = [name for name in names if name != ALL], {}
    known = engines()
    for name in sorted(known, key=lambda n: n == REFERENCE):
        state = known[name].availability()
        if name in chosen:
            continue
        if not state.ok:
            skipped[name] = f"{state.reason}: {state.hint}" if state.hint else state.reason
            continue
        if model.suffix == ".onnx":  # an engine that takes none says so when it loads; nothing is imported to learn it
            chosen.append(name)
            continue
        known[name].prepare()
        suffixes = known[name].traits().suffixes
        if model.suffix in suffixes:
            chosen.append(name)
        else:
            skipped[name] = f"takes {', '.join(suffixes)}"
    return chosen, skipped


def reasons(skipped: Mapping[str, str]) -> str:
    """Say in one line why engines were left out."""
    return "; ".join(f"{name}: {reason.splitlines()[0]}" for name, reason in skipped.items())


def default_engines(model: Path) -> tuple[str, str]:
    """Return opforge and what to hold it against: ONNX Runtime where it can run the model, else ONNX's evaluator."""
    proto = read_model(model, weights=False)
    bodies = {(function.domain, function.name) for function in proto.functions}
    known = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
    custom = {(node.domain, node.op_type) for node in proto.graph.node if node.domain not in known}
    usable = engines()["onnxruntime"].availability().ok and custom <= bodies
    return "opforge", "onnxruntime" if usable else REFERENCE
