"""Checks that results do not depend on who computes: repetition, chunks, threads, interpreter or compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from opforge.build.interpreter import interpreter_library
from opforge.build.invoke import split_loops
from opforge.build.jit import library_for
from opforge.build.plan import plan_library
from opforge.errors import OpforgeError
from opforge.frameworks import numpy_host
from opforge.schema import DType, Operator, f64
from opforge.verify._announced import announce
from opforge.verify._rows import Array, Row, choices, label, same_bits
from opforge.verify.cases import Case, arrays, cases_of
from opforge.verify.hosts import Host

__all__ = ["determinism", "in_host", "interpreter"]

_THREADS = 4
_HOST_CASES = 4


def _compute(operator: Operator, inputs: Sequence[Any], case: Case, library: Any = None) -> list[Array]:  # noqa: ANN401
    announce("determinism", case.name, "numpy", " ".join(dict.fromkeys(str(v.dtype) for v in inputs if v is not None)))
    result = numpy_host.call(operator, operator.arrange(inputs, {}), case.attributes, library=library)
    return [np.asarray(v) for v in (result if isinstance(result, tuple) else [result])]


def _points(operator: Operator, types: dict[str, DType], seed: int) -> list[tuple[Case, list[Array | None]]]:
    return [(case, arrays(operator, case, types, seed=seed)) for case in cases_of(operator)]


def determinism(operator: Operator, seed: int, rounds: int = 2) -> Iterator[Row]:
    """Equal bits when repeated, when the kernel's loops are split otherwise, and from several threads at once."""
    if not operator.deterministic:
        yield from _spread(operator, seed)
        return
    for types in choices(operator):
        points = _points(operator, types, seed)
        try:
            first = [_compute(operator, inputs, case) for case, inputs in points]
            again = [_compute(operator, inputs, case) for case, inputs in points]
            with split_loops(0xFF):
                split = [_compute(operator, inputs, case) for case, inputs in points]
            with split_loops(0x42):
                filled = [_compute(operator, inputs, case) for case, inputs in points]
            together = _together(points, partial(_of_case, operator), rounds)
        except OpforgeError as problem:
            yield Row("determinism", "", "numpy", label(types), False, str(problem))
            continue
        rows = (
            ("every element written", split, filled, "the kernel leaves elements of its output unwritten"),
            ("repeated", first, again, "the kernel keeps state between calls, or reads memory that it did not write"),
            (
                "split loops",
                first,
                split,
                "the chunks of parallel_for are not independent, or the order of a sum depends on them",
            ),
            (
                f"{_THREADS} threads at once",
                first,
                together,
                "calls share memory: kernels must have no mutable globals or statics",
            ),
        )
        for name, expected, results, reason in rows:
            found = ""
            for (case, _), a, b in zip(points, expected, results, strict=True):
                found = same_bits(a, b)
                if found:
                    found = f"case {case.name}: {found}; {reason} (or declare deterministic=False)"
                    break
            yield Row("determinism", name, "numpy", label(types), not found, found)


def _of_case(operator: Operator, case: Case, inputs: list[Array | None]) -> list[Array]:
    return _compute(operator, inputs, case)


def _together(
    points: list[tuple[Case, list[Array | None]]],
    compute: Callable[[Case, list[Array | None]], list[Array]],
    rounds: int,
) -> list[list[Array]]:
    """Compute all cases in several threads; the results of the last thread that differs from the first, else these."""

    def all_cases(shift: int) -> list[list[Array]]:
        # Each thread begins elsewhere, so that different sizes run at the same time.
        order = [(k + shift) % len(points) for k in range(len(points))]
        results: dict[int, list[Array]] = {}
        for _ in range(rounds):
            for k in order:
                results[k] = compute(*points[k])
        return [results[k] for k in range(len(points))]

    with ThreadPoolExecutor(_THREADS) as pool:
        runs = list(pool.map(all_cases, range(_THREADS)))
    for run in runs[1:]:
        if any(same_bits(a, b) for a, b in zip(runs[0], run, strict=True)):
            return run
    return runs[0]


def _spread(operator: Operator, seed: int) -> Iterator[Row]:
    """How far equal calls of an operator that declares itself not deterministic are apart; no verdict."""
    for types in choices(operator):
        largest = 0.0
        for case, inputs in _points(operator, types, seed):
            runs = [[np.asarray(v, np.float64) for v in _compute(operator, inputs, case)] for _ in range(5)]
            for values in zip(*runs, strict=True):
                with np.errstate(invalid="ignore"):
                    apart = np.abs(np.max(values, axis=0) - np.min(values, axis=0))
                largest = max(largest, float(np.nanmax(apart, initial=0.0)))
        text = f"declared not deterministic: five equal calls differ by at most {largest:.3g}"
        yield Row("determinism", "spread", "numpy", label(types), True, text if largest else "")


def in_host(operator: Operator, host: Host, seed: int, rounds: int) -> Iterator[Row]:
    """Equal bits in a framework when repeated, and from several threads at once."""
    if not operator.deterministic:
        return

    def compute(case: Case, inputs: list[Array | None]) -> list[Array]:
        announce("determinism", case.name, host.name)
        return host.compute(operator, inputs, case.attributes)

    for types in choices(operator):
        points = _points(operator, types, seed)[:_HOST_CASES]
        try:
            first = [compute(case, inputs) for case, inputs in points]
            together = _together(points, compute, rounds)
        except OpforgeError as problem:
            yield Row("determinism", "", host.name, label(types), False, str(problem))
            continue
        found = ""
        for (case, _), a, b in zip(points, first, together, strict=True):
            found = found or (f"case {case.name}: {text}" if (text := same_bits(a, b)) else "")
        reason = "; calls share memory, or the kernel keeps state (or declare deterministic=False)" if found else ""
        yield Row("determinism", f"{_THREADS} threads at once", host.name, label(types), not found, found + reason)


def interpreter(operator: Operator, seed: int) -> Iterator[Row]:
    """A formula's compiled kernel against the bytecode interpreter: equal bits but in f64, which uses libm."""
    if operator.formula is None:
        return
    compiled = library_for([operator])
    if compiled.interpreted:
        return
    interpreted = interpreter_library(plan_library([operator]))
    for types in choices(operator):
        if f64 in types.values():
            continue
        found = ""
        for case, inputs in _points(operator, types, seed):
            a, b = (_compute(operator, inputs, case, library) for library in (compiled, interpreted))
            found = same_bits(a, b)
            if found:
                found = f"case {case.name}: compiled and interpreted {found}; this is a fault of opforge"
                break
        yield Row("interpreter", "equal bits", "numpy", label(types), not found, found)
