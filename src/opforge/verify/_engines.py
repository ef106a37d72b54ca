"""All engines of this installation by name: the folders of ``opforge.engines`` and opforge's own runtime."""

from __future__ import annotations

from opforge.bin.engine import engine as opforge_engine
from opforge.engines import Engine, folder_engines
from opforge.errors import ArgumentError, Candidate, CandidateError

__all__ = ["engines", "find_engine"]


def engines() -> dict[str, Engine]:
    """Return every engine, available or not; opforge comes first."""
    return {opforge_engine.name: opforge_engine, **folder_engines()}


def find_engine(name: str) -> Engine:
    """Return one available engine by name.

    Raises:
        ArgumentError: there is no engine of that name.
        CandidateError: it is known, but cannot be used here.
    """
    known = engines()
    if name not in known:
        raise ArgumentError(f"there is no engine {name!r}", expected=f"one of {', '.join(known)}")
    state = known[name].availability()
    if not state.ok:
        raise CandidateError("the engine cannot be used here", [Candidate(name, state.reason)], hint=state.hint)
    return known[name]
