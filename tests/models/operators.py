"""Two domains, each with two versions of an operator that mean different things."""

import opforge as of

__all__ = ["bend", "bend_before", "gain", "gain_later"]


@of.formula("test.first::Gain")
def gain(x, *, by: float = 2.0):
    """Multiply."""
    return x * by


@of.formula("test.first::Gain", 2, host_name="gain_2")
def gain_later(x, *, by: float = 2.0):
    """Divide: another meaning, another version."""
    return x / by


@of.formula("test.second::Bend", host_name="bend_1")
def bend_before(x):
    """As it was before version 2."""
    return x + 1.0


@of.formula("test.second::Bend", 2)
def bend(x):
    """Bend smoothly."""
    return x / (1.0 + of.exp(-x))
