"""Checks that a kernel refuses integers that lie outside of everything, instead of reading wherever they point."""

from __future__ import annotations

from collections.abc import Iterator

from opforge.schema import DType, Operator
from opforge.verify._rows import Row
from opforge.verify.isolated import run_isolated

__all__ = ["bad_values", "takes_integers"]


def takes_integers(operator: Operator) -> bool:
    """Whether a kernel has an integer input, whose values it has to check."""
    found: list[DType | None] = []
    for parameter in operator.signature.inputs:
        found += operator.types.get(parameter.type) or (parameter.dtype,)
    return not operator.is_formula and any(d is not None and not d.is_float and d.name != "bool" for d in found)


def bad_values(operator: Operator, seed: int) -> Iterator[Row]:
    """The smallest and largest integer in each integer input: an error, or what the reference gives."""
    outcome = run_isolated(operator, "values", seed)
    hint = "a kernel checks the values of indices and reports a wrong one with context.fail(...)"
    if outcome.code:
        at = outcome.last
        place = f"{at['input']}[{at['position']}] = {at['value']}" if "input" in at else "loading"
        words = outcome.errors.strip().splitlines()[-1:] if outcome.code > 0 else []
        detail = f"with {place} the process ended by {outcome.ending}{': ' if words else ''}{''.join(words)}; {hint}"
        yield Row("bad values", str(at.get("case", "")), "numpy", str(at.get("dtype", "")), False, detail)
        return
    done = [event for event in outcome.events if event["event"] == "done"]
    for event in done:
        if event["accepted"]:
            detail = f"with {event['input']}[{event['position']}] = {event['value']} {event['accepted']}; {hint}"
            yield Row("bad values", event["case"], "numpy", event["dtype"], False, detail)
            return
    yield Row("bad values", f"{len(done)} values", "numpy", "", True)
