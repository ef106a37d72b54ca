"""Match a formula's form, in which attributes are unknown, with the form of a part of a model, and solve for them.

Numbers are equal to within a rounding of float32 at each side. A scalar equation with one unknown attribute is solved
at once; one with more waits until others have decided, in the end by the attributes' defaults.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opforge.onnx._canonical import Form

__all__ = ["unify"]

TOLERANCE = 2.0**-22
"""Relative difference of numbers that are one: two constants of a model, each rounded once, that were multiplied."""

_INVERSE = {"exp": math.log, "log": math.exp, "sqrt": lambda t: t * t, "square": math.sqrt, "tanh": math.atanh}


@dataclass(frozen=True)
class _State:
    """Attributes found so far, and scalar equations that wait."""

    bound: Mapping[int, float]
    waiting: tuple[tuple[Form, float], ...] = ()

    def bind(self, index: int, value: float) -> _State | None:
        if index in self.bound:
            return self if _close(self.bound[index], value) else None
        return _State({**self.bound, index: value}, self.waiting) if math.isfinite(value) else None


def unify(pattern: Form, target: Form, defaults: Mapping[int, float]) -> dict[int, float] | None:
    """Return the values of attributes with which both forms are equal, None where there are none.

    Args:
        pattern: form of a formula; ("attribute", k) stands for a number to be found.
        target: form without attributes.
        defaults: values for attributes that the equations leave open.
    """
    for state in _match(pattern, target, _State({})):
        solved = _finish(state, defaults)
        if solved is not None:
            return solved
    return None


def _finish(state: _State | None, defaults: Mapping[int, float]) -> dict[int, float] | None:
    while state is not None and state.waiting:
        waiting, before = state.waiting, state
        state = _State(state.bound)
        for form, value in waiting:
            state = _solve(form, value, state)
            if state is None:
                return None
        if len(state.waiting) == len(before.waiting) and state.bound == before.bound:
            unknown = [k for form, _ in state.waiting for k in _unknown(form, state) if k in defaults]
            if not unknown:
                return None
            state = state.bind(unknown[0], defaults[unknown[0]])
    return None if state is None else dict(state.bound)


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def _parts(form: Form) -> Iterator[Form]:
    yield from (part for part in form if isinstance(part, tuple))


def _is_scalar(form: Form) -> bool:
    return form[0] != "input" and all(_is_scalar(part) for part in _parts(form))


def _unknown(form: Form, state: _State) -> set[int]:
    if form[0] == "attribute":
        return set() if form[1] in state.bound else {form[1]}
    return set().union(*(_unknown(part, state) for part in _parts(form)))


def _value(form: Form, state: _State) -> float | None:
    """Return a scalar form's value; None where an attribute is unknown or there is no such number."""
    if form[0] == "number":
        return float(form[1])
    if form[0] == "attribute":
        return state.bound.get(form[1])
    values = [_value(part, state) for part in _parts(form)]
    known = [v for v in values if v is not None]
    if len(known) != len(values):
        return None
    try:
        match form[0]:
            case "product":
                return float(form[1] * math.prod(known))
            case "sum":
                return float(form[1] + sum(known))
            case "reciprocal":
                return 1.0 / known[0]
            case "pow":
                return float(known[0] ** known[1])
            case "sqrt" | "exp" | "log" | "tanh":
                return float(getattr(math, form[0])(known[0]))
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return None


def _solve(form: Form, value: float, state: _State) -> _State | None:
    """Let a scalar form have a value."""
    if form[0] == "attribute":
        return state.bind(form[1], value)
    unknown = _unknown(form, state)
    if not unknown:
        found = _value(form, state)
        return state if found is not None and _close(found, value) else None
    open_parts = [part for part in _parts(form) if _unknown(part, state)]
    power = len(open_parts) if form[0] == "product" and len(set(open_parts)) == 1 else 1
    if len(open_parts) > power:
        return _State(state.bound, (*state.waiting, (form, value)))
    known = [_value(part, state) for part in _parts(form) if part not in open_parts]
    if any(v is None for v in known):
        return None
    rest = [v for v in known if v is not None]
    try:
        match form[0]:
            case "product":
                inner = value / (form[1] * math.prod(rest))
                inner = inner if power == 1 else math.pow(inner, 1 / power)  # the positive root
            case "sum":
                inner = value - form[1] - sum(rest)
            case "reciprocal":
                inner = 1.0 / value
            case name if name in _INVERSE:
                inner = _INVERSE[name](value)
            case _:
                return None
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    return _solve(open_parts[0], inner, state)


def _match(pattern: Form, target: Form, state: _State) -> Iterator[_State]:
    if _is_scalar(pattern):
        if target[0] == "number":
            found = _solve(pattern, float(target[1]), state)
            if found is not None:
                yield found
        return
    head = pattern[0]
    if head == "input":
        if pattern == target:
            yield state
    elif head in ("product", "sum"):
        yield from _terms(pattern, target, state)
    elif head in ("min", "max"):
        if target[0] == head:
            yield from _any_order(pattern[1:], target[1:], state)
    elif target[0] == head and len(target) == len(pattern):
        yield from _in_order(pattern[1:], target[1:], state)


def _terms(pattern: Form, target: Form, state: _State) -> Iterator[_State]:
    """Match variable factors or terms in any order; the scalars together are the target's number."""
    neutral = 1.0 if pattern[0] == "product" else 0.0
    number, terms = (target[1], target[2:]) if target[0] == pattern[0] else (neutral, (target,))
    variable = [part for part in pattern[2:] if not _is_scalar(part)]
    scalars = [part for part in pattern[2:] if _is_scalar(part)]
    for found in _any_order(variable, terms, state):
        solved = _solve((pattern[0], pattern[1], *scalars), number, found)
        if solved is not None:
            yield solved


def _in_order(patterns: Sequence[object], targets: Sequence[object], state: _State) -> Iterator[_State]:
    if not patterns:
        yield state
        return
    first, other = patterns[0], targets[0]
    if isinstance(first, tuple) and isinstance(other, tuple):
        for found in _match(first, other, state):
            yield from _in_order(patterns[1:], targets[1:], found)
    elif first == other:
        yield from _in_order(patterns[1:], targets[1:], state)


def _any_order(patterns: Sequence[Form], targets: Sequence[Form], state: _State) -> Iterator[_State]:
    if len(patterns) != len(targets):
        return
    if not patterns:
        yield state
        return
    tried: list[Form] = []
    for k, target in enumerate(targets):
        if target in tried:
            continue
        tried.append(target)
        for found in _match(patterns[0], target, state):
            yield from _any_order(patterns[1:], (*targets[:k], *targets[k + 1 :]), found)
