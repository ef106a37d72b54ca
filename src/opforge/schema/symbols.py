"""Dimensions given by name: integer polynomials over names such as ONNX's ``dim_param`` ("N", "2*N + 1").

Two expressions that are equal as polynomials print alike, so that ``p + 1 - 1`` is ``p`` again. A floor
division that does not come out even, and a text that is no expression, is an atom of its own.
"""

from __future__ import annotations

from opforge.errors import SchemaError
from opforge.schema import dims
from opforge.schema.lexer import Cursor

__all__ = ["Symbolic", "parse_symbolic"]


class Symbolic:
    """A polynomial with integer coefficients; keys are sorted runs of atoms, ``()`` is the constant."""

    def __init__(self, terms: dict[tuple[str, ...], int]) -> None:
        """Keep the terms whose coefficient is not 0."""
        self.terms = {atoms: factor for atoms, factor in terms.items() if factor}

    @property
    def constant(self) -> int | None:
        """The value where it is a plain number."""
        return self.terms.get((), 0) if set(self.terms) <= {()} else None

    def __add__(self, other: Symbolic | int) -> Symbolic:
        terms = dict(self.terms)
        for atoms, factor in _lift(other).terms.items():
            terms[atoms] = terms.get(atoms, 0) + factor
        return Symbolic(terms)

    def __mul__(self, other: Symbolic | int) -> Symbolic:
        terms: dict[tuple[str, ...], int] = {}
        for left, a in self.terms.items():
            for right, b in _lift(other).terms.items():
                atoms = tuple(sorted(left + right))
                terms[atoms] = terms.get(atoms, 0) + a * b
        return Symbolic(terms)

    def __sub__(self, other: Symbolic | int) -> Symbolic:
        return self + _lift(other) * -1

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Symbolic:
        return _lift(other) - self

    def __floordiv__(self, other: Symbolic | int) -> Symbolic:
        divisor = other if isinstance(other, int) else other.constant
        if divisor is None:
            return Symbolic({(f"{_group(str(self))}//{_group(str(other))}",): 1})
        if divisor < 0:
            return (self * -1) // -divisor
        even = {atoms: factor // divisor for atoms, factor in self.terms.items() if factor % divisor == 0}
        odd = Symbolic({atoms: factor for atoms, factor in self.terms.items() if factor % divisor})
        if odd.constant is not None:  # (d*q + r)//d is q + r//d
            return Symbolic(even) + odd.constant // divisor
        return Symbolic(even) + Symbolic({(f"{_group(str(odd))}//{divisor}",): 1})

    def __rfloordiv__(self, other: int) -> Symbolic:
        return _lift(other) // self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbolic | int) and self.terms == _lift(other).terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __str__(self) -> str:
        """Write as an expression: products first, the constant last."""
        text = ""
        for atoms, factor in sorted(self.terms.items(), key=lambda item: (-len(item[0]), item[0])):
            parts = [] if abs(factor) == 1 and atoms else [str(abs(factor))]
            alone = len(parts) + len(atoms) == 1 and (text or factor > 0)  # "-N//2" would be (-N)//2
            parts += atoms if alone else [_group(atom) for atom in atoms]
            sign = ("- " if factor < 0 else "+ ") if text else ("-" if factor < 0 else "")
            text += (" " if text else "") + sign + "*".join(parts)
        return text or "0"

    __repr__ = __str__


def parse_symbolic(text: str) -> int | Symbolic | None:
    """Read a dimension's text; None where it names no dimension (empty or ``?``)."""
    if text.strip() in ("", "?"):
        return None
    try:
        cursor = Cursor(text, "dimension", "")
        tree = dims.parse_expression(cursor)
        cursor.end()
        value = dims.evaluate(tree, {name: Symbolic({(name,): 1}) for name in dims.names(tree)})
    except (SchemaError, dims.DimensionError):
        return Symbolic({(text,): 1})
    if isinstance(value, Symbolic):
        return value if value.constant is None else value.constant
    return int(value)


def _lift(value: Symbolic | int) -> Symbolic:
    return value if isinstance(value, Symbolic) else Symbolic({(): int(value)})


def _group(text: str) -> str:
    return text if text.isalnum() or text.replace("_", "").replace(".", "").isalnum() else f"({text})"
