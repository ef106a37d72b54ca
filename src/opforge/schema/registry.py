"""The registry: every declared operator of the process, found by domain, name and version."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from opforge.errors import MissingOperatorError, SchemaError
from opforge.schema.operator import Operator

__all__ = ["find", "get", "nearest", "operators", "register", "registering", "subscribe", "unregister", "versions"]

_lock = threading.RLock()
_operators: dict[tuple[str, str], dict[int, Operator]] = {}  # (domain, name) -> since_version -> operator
_host_names: dict[tuple[str, str], Operator] = {}  # (namespace, host name) -> operator of any version
_subscribers: list[Callable[[Operator], None]] = []
_recorder = threading.local()


def register(operator: Operator) -> Operator:
    """Enter an operator; entering an equal one again is harmless and gives the first.

    Raises:
        SchemaError: another operator has the same key with a different schema, or the same host name.
    """
    with _lock:
        versions_ = _operators.get((operator.domain, operator.name), {})
        known = versions_.get(operator.since_version)
        if known is not None:
            if known.schema_hash != operator.schema_hash:
                raise SchemaError(
                    "the operator is declared twice with different schemas",
                    where=operator.key,
                    expected=f"{_describe(known)}\n    declared at {known.declared_at or '?'}",
                    got=f"{_describe(operator)}\n    declared at {operator.declared_at or '?'}",
                    hint="two files declare it: give one of them another name or domain, or load only one"
                    if _of_two_files(known, operator)
                    else "raise since= for a changed operator, or restart the process (the notebook's kernel)",
                )
            _record(known)
            return known
        place = (operator.host_namespace, operator.host_name)
        other = _host_names.get(place)
        if other is not None and (other.domain, other.name) != (operator.domain, operator.name):
            raise SchemaError(
                f"two operators have the host name {'.'.join(place)}",
                where=operator.key,
                expected="a host name of its own",
                got=f"{other.key} declared at {other.declared_at or '?'}, "
                f"{operator.key} declared at {operator.declared_at or '?'}",
                hint="give one of them host_name=",
            )
        _host_names[place] = operator
        _operators.setdefault((operator.domain, operator.name), {})[operator.since_version] = operator
        subscribers = list(_subscribers)
        _record(operator)
    for subscriber in subscribers:
        subscriber(operator)
    return operator


def unregister(operator: Operator) -> None:
    """Take an operator out again; for tests and for reloading in a notebook. Hosts keep what they registered."""
    with _lock:
        versions_ = _operators.get((operator.domain, operator.name), {})
        if versions_.pop(operator.since_version, None) is not None and not versions_:
            del _operators[operator.domain, operator.name]
            for place in [p for p, o in _host_names.items() if (o.domain, o.name) == (operator.domain, operator.name)]:
                del _host_names[place]


def subscribe(callback: Callable[[Operator], None]) -> None:
    """Call back for every operator that is registered now or later; hosts use it to publish operators."""
    with _lock:
        _subscribers.append(callback)
        known = [operator for versions_ in _operators.values() for operator in versions_.values()]
    for operator in known:
        callback(operator)


def find(domain: str, name: str, version: int | None = None) -> Operator | None:
    """Find an operator among those registered, without loading packages; None where there is none.

    Args:
        domain: its domain.
        name: its name; gradient operators are found through the operator that they belong to.
        version: the operator-set version asked for: the newest since_version up to it counts; None = the newest.
    """
    with _lock:
        found = _pick(domain, name, version)
        owners = [] if found else _owners(domain, name)
    if owners:
        # Making derivatives takes time, so it happens here, outside the lock and only for what is asked for.
        for derived in [d for owner in owners for d in owner.derived]:
            register(derived)
            for second in derived.derived:
                register(second)
        with _lock:
            found = _pick(domain, name, version)
    return found


def get(domain: str, name: str, version: int | None = None) -> Operator:
    """Find an operator, loading installed operator packages where it is not yet registered.

    Args:
        domain: its domain.
        name: its name.
        version: the operator-set version asked for: the newest since_version up to it counts; None = the newest.

    Raises:
        MissingOperatorError: there is none; the message names the nearest.
    """
    found = find(domain, name, version)
    if found is None:
        from opforge.schema.loading import discover

        discover()
        found = find(domain, name, version)
    if found is None:
        raise missing(domain, name, version)
    return found


def missing(domain: str, name: str, version: int | None = None) -> MissingOperatorError:
    """Make the error for an operator that is not registered, with what comes nearest."""
    wanted = f"{domain}::{name}" + ("" if version is None else f" for version {version}")
    known = versions(domain, name)
    if known:
        return MissingOperatorError(
            "no version of the operator is old enough",
            where=wanted,
            expected=f"since_version up to {version}",
            got=", ".join(map(str, known)),
        )
    close = nearest(f"{domain}::{name}", operators())
    hint = f"did you mean {close}?" if close else "load its package with opforge.load(...)"
    return MissingOperatorError("the operator is not registered", where=wanted, hint=hint)


def versions(domain: str, name: str) -> list[int]:
    """Give the since_versions of an operator, oldest first; empty where it is unknown."""
    with _lock:
        return sorted(_operators.get((domain, name), {}))


def operators(*, gradients: bool = False, all_versions: bool = False) -> dict[str, Operator]:
    """Give the registered operators.

    Args:
        gradients: whether generated gradient operators are among them.
        all_versions: False gives the newest of each under ``domain::Name``; True gives all under
            ``domain::Name:version``.
    """
    with _lock:
        known = [list(versions_.values()) for versions_ in _operators.values()]
    found: dict[str, Operator] = {}
    for group in known:
        for operator in sorted(group, key=lambda o: o.since_version):
            if gradients or not operator.is_gradient:
                found[operator.key if all_versions else operator.qualified_name] = operator
    return dict(sorted(found.items()))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Give the known name that is spelt most alike, ignoring case; None where nothing comes near."""
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.lower(), candidate)
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


@contextmanager
def registering() -> Iterator[list[Operator]]:
    """Collect the operators that this thread registers, or registers again, in the block."""
    collected: list[Operator] = []
    stack = _recorder.__dict__.setdefault("stack", [])
    stack.append(collected)
    try:
        yield collected
    finally:
        stack.remove(collected)


def _record(operator: Operator) -> None:
    for collected in _recorder.__dict__.get("stack", []):
        if operator not in collected:
            collected.append(operator)


def _pick(domain: str, name: str, version: int | None) -> Operator | None:
    versions_ = _operators.get((domain, name), {})
    fitting = [v for v in versions_ if version is None or v <= version]
    return versions_[max(fitting)] if fitting else None


def _owners(domain: str, name: str) -> list[Operator]:
    """Give the operators that a gradient operator's name may belong to."""
    bases = {name.removesuffix("Grad"), name.removesuffix("GradGrad")} - {name}
    return [operator for base in bases for operator in _operators.get((domain, base), {}).values()]


def _of_two_files(one: Operator, other: Operator) -> bool:
    """Whether two declarations lie in different files; the cells of a notebook are none."""
    files = {Path(operator.declared_at.rpartition(":")[0]) for operator in (one, other)}
    return len(files) == 2 and all(file.is_file() for file in files)


def _describe(operator: Operator) -> str:
    formula = f" = {operator.formula.canonical}" if operator.formula is not None else ""
    return f"{operator.signature}{formula} {{{operator.types_text}}} {operator.schema_hash[:12]}"
