"""What each level of `opforge check` does, as one table."""

from __future__ import annotations

from dataclasses import dataclass

from opforge.errors import ArgumentError

__all__ = ["LEVELS", "Level", "level_named"]


@dataclass(frozen=True)
class Level:
    """How far a check goes.

    Attributes:
        name: as the user gives it.
        frameworks: whether installed frameworks are checked besides NumPy.
        engines: whether installed engines are.
        modes: how a framework is called: "eager", "traced" (tf.function, jax.jit, torch.compile without code
            generation), "compiled" (torch.compile with it).
        layout_cases: cases per choice of dtypes that are tried in every memory layout: sizes and layouts hardly ever
            fail only together.
        drawn: shapes that are drawn from the schema.
        traced: points per choice of dtypes in the modes other than eager, and in engines.
        rounds: how often each of several threads computes all cases.
        contracts: whether leaks, aliases, registration, the loaded library and bad values are checked.
        forwards: calls of the check for leaks.
        examples: random examples of the property tests; 0 = none unless they are asked for.
    """

    name: str
    frameworks: bool
    engines: bool
    modes: tuple[str, ...]
    layout_cases: int
    drawn: int
    traced: int
    rounds: int
    contracts: bool
    forwards: int
    examples: int


LEVELS = {
    level.name: level
    for level in (
        Level("quick", False, False, ("eager",), 0, 4, 0, 2, False, 0, 0),
        Level("default", True, True, ("eager", "traced"), 3, 14, 2, 2, True, 200, 0),
        Level("deep", True, True, ("eager", "traced", "compiled"), 1000, 60, 4, 20, True, 2000, 300),
    )
}


def level_named(name: str) -> Level:
    """Return the level of this name.

    Raises:
        ArgumentError: there is none.
    """
    if name not in LEVELS:
        raise ArgumentError("there is no such level", where="check", expected=" or ".join(LEVELS), got=repr(name))
    return LEVELS[name]
