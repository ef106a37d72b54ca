"""Property tests: random calls drawn from an operator's schema, and the smallest one that fails, as a program to run.

`points` is a hypothesis strategy, for tests of one's own; `property_rows` is what ``opforge check --property`` runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.errors import OpforgeError, UnsupportedError
from opforge.schema import DType, Operator
from opforge.verify._rows import Array, Row, choices, held, label
from opforge.verify._snippet import snippet
from opforge.verify._variants import layouts
from opforge.verify.cases import Case, arrays, cases_of, limit_of
from opforge.verify.hosts import Host
from opforge.verify.sweep import size_names, sized_case, unruly

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["Point", "points", "property_rows"]

_LARGEST_SIZE = 6
_LARGEST_RANK = 4
_KERNEL_RANGE = 8.0
"""Kernels add up: tolerances are stated for values of about this size; formulas meet every number."""


@dataclass(frozen=True)
class Point:
    """One call: what is passed, and the choice of dtypes that it belongs to."""

    inputs: list[Array | None]
    attributes: Mapping[str, Any]
    types: Mapping[str, DType]
    layout: str = "dense"


def points(operator: Operator) -> SearchStrategy[Point]:
    """Return a strategy of calls that fit the signature: sizes from 0, every dtype, any layout, special values.

    Raises:
        UnsupportedError: hypothesis is not installed, or an input takes integers that only the author can draw.
    """
    strategies = _hypothesis().strategies
    missing = unruly(operator)
    if missing:
        raise UnsupportedError(
            "random calls cannot be drawn",
            where=operator.qualified_name,
            expected="DRAWS in cases.py, which says what integer inputs may be",
            got=f"nothing for {', '.join(missing)}",
        )
    chosen = list(choices(operator))
    plain, runs = size_names(operator)
    given = [dict(case.attributes) for case in cases_of(operator)] or [{}]

    @strategies.composite  # type: ignore[untyped-decorator]
    def drawn(draw: Any) -> Point:  # noqa: ANN401
        types = draw(strategies.sampled_from(chosen))
        sizes: dict[str, Any] = {name: draw(strategies.integers(0, _LARGEST_SIZE)) for name in plain}
        whole = draw(strategies.lists(strategies.integers(0, 4), max_size=_LARGEST_RANK)) if runs else []
        for name, together in runs.items():
            sizes[name] = _run(draw, strategies, whole) if together else list(whole)
        number = draw(strategies.integers(0, 5))
        seed = draw(strategies.integers(0, 2**16))
        attributes = draw(strategies.sampled_from(given))
        case = sized_case(operator, "random", sizes, attributes, number, np.random.default_rng(seed))
        if case is None:
            _hypothesis().reject()
        assert case is not None
        inputs = [_values(draw, strategies, v, operator) for v in arrays(operator, case, types, seed=seed)]
        return _laid_out(draw, strategies, Point(inputs, attributes, types))

    return drawn()  # type: ignore[no-any-return]


def _run(draw: Any, strategies: Any, whole: list[int]) -> list[int]:  # noqa: ANN401
    """A shape that broadcasts to ``whole``."""
    kept = whole[draw(strategies.integers(0, len(whole))) :]
    return [1 if draw(strategies.booleans()) else size for size in kept]


def _values(draw: Any, strategies: Any, array: Array | None, operator: Operator) -> Array | None:  # noqa: ANN401
    """Put drawn numbers into some elements of a floating array: few, so that a failure shrinks to them."""
    if array is None or not array.size or array.dtype.kind in "biu":
        return array
    special = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf")]
    if operator.nan_policy == "propagate":
        special.append(float("nan"))
    if operator.is_formula:
        wide, limit = array.dtype == np.float64, limit_of(operator)
        numbers = strategies.floats(width=64 if wide else 32)
        if math.isfinite(limit):
            largest = limit if wide else float(np.nextafter(np.float32(limit), np.float32(0)))
            numbers = strategies.floats(-largest, largest, width=64 if wide else 32)
    else:
        numbers = strategies.floats(-_KERNEL_RANGE, _KERNEL_RANGE, width=32)
    changes = draw(
        strategies.dictionaries(
            strategies.integers(0, array.size - 1),
            strategies.one_of(strategies.sampled_from(special), numbers),
            max_size=3,
        )
    )
    filled = draw(strategies.sampled_from(("drawn", "ones", "zeros")))
    made = {"drawn": array, "ones": np.ones_like(array), "zeros": np.zeros_like(array)}[filled].copy()
    with np.errstate(over="ignore"):
        for place, number in changes.items():
            made.reshape(-1)[place] = np.float64(number).astype(made.dtype)
    return made


def _laid_out(draw: Any, strategies: Any, point: Point) -> Point:  # noqa: ANN401
    places = [k for k, value in enumerate(point.inputs) if value is not None and value.size and value.ndim]
    if not places or draw(strategies.booleans()):
        return point
    place = draw(strategies.sampled_from(places))
    value = point.inputs[place]
    assert value is not None
    name, other = draw(strategies.sampled_from(list(layouts(value))))
    inputs = [*point.inputs[:place], other, *point.inputs[place + 1 :]]
    return Point(inputs, point.attributes, point.types, f"input {place} {name}")


def property_rows(operator: Operator, host: Host, examples: int, seed: int) -> Iterator[Row]:
    """Hold random calls against the reference; a failure is shrunk, and its row holds a program that shows it."""
    hypothesis = _hypothesis()
    failing: list[tuple[Point, str]] = []

    class _FailedError(AssertionError):
        pass

    @hypothesis.seed(seed)  # type: ignore[untyped-decorator]
    @hypothesis.settings(  # type: ignore[untyped-decorator]
        max_examples=examples,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(points(operator))  # type: ignore[untyped-decorator]
    def test(point: Point) -> None:
        case = Case("random", {}, point.attributes)
        row = held(operator, host, case, "random", point.inputs, point.types, "property")
        if not row.passed:
            failing.append((point, row.detail))
            raise _FailedError(row.detail)

    try:
        test()
    except _FailedError:
        point, detail = failing[-1]  # hypothesis runs the smallest one last
        text = snippet(operator, point.inputs, point.attributes, host.name)
        where = f"smallest failing call ({point.layout})"
        yield Row("property", where, host.name, label(point.types), False, f"{detail}; seed {seed}; to see it:\n{text}")
        return
    except OpforgeError as problem:
        yield Row("property", "", host.name, "", False, str(problem))
        return
    yield Row("property", f"{examples} random calls", host.name, "", True)


def _hypothesis() -> Any:  # noqa: ANN401 - the module
    try:
        import hypothesis
        import hypothesis.strategies
    except ModuleNotFoundError:
        raise UnsupportedError(
            "property tests need hypothesis, which is not installed",
            where="check",
            hint="pip install 'opforge[property]'",
        ) from None
    return hypothesis
