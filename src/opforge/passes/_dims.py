"""Symbolic dimensions: integer polynomials over names and floor divisions; equal things look equal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

__all__ = ["Dim", "parse", "presumably_equal", "unknown"]

_Terms = tuple[tuple[tuple[str, ...], int], ...]


class Dim:
    """A dimension: sum of ``coefficient * product of atoms``; an atom is a name or the text of a floor division."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[tuple[str, ...], int] | _Terms = ()) -> None:
        pairs = terms.items() if isinstance(terms, dict) else terms
        self.terms: _Terms = tuple(sorted((m, c) for m, c in pairs if c))

    @staticmethod
    def of(value: Dim | int | str) -> Dim:
        """Make a dimension from an integer or one name."""
        if isinstance(value, Dim):
            return value
        return Dim({(value,): 1}) if isinstance(value, str) else Dim({(): int(value)})

    @property
    def constant(self) -> int | None:
        """The number, when no name is left."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def is_anonymous(self) -> bool:
        """Whether a dimension without a name takes part."""
        return any("?" in atom for monomial, _ in self.terms for atom in monomial)

    @property
    def names(self) -> frozenset[str]:
        """The names that take part, also inside floor divisions."""
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found |= _floors[atom][0].names if atom in _floors else {atom}
        return frozenset(found)

    def at(self, sizes: Mapping[str, int]) -> int | None:
        """Return the number for sizes of all names; None where a division by a name takes part."""
        total = 0
        for monomial, c in self.terms:
            for atom in monomial:
                if atom in _floors:
                    inner = _floors[atom][0].at(sizes)
                    factor = None if inner is None else inner // _floors[atom][1]
                else:
                    factor = sizes.get(atom)
                if factor is None:
                    return None
                c *= factor
            total += c
        return total

    def __add__(self, other: Dim | int) -> Dim:
        out = dict(self.terms)
        for monomial, c in Dim.of(other).terms:
            out[monomial] = out.get(monomial, 0) + c
        return Dim(out)

    def __neg__(self) -> Dim:
        return Dim({m: -c for m, c in self.terms})

    def __sub__(self, other: Dim | int) -> Dim:
        return self + -Dim.of(other)

    def __mul__(self, other: Dim | int) -> Dim:
        out: dict[tuple[str, ...], int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in Dim.of(other).terms:
                m = tuple(sorted(m1 + m2))
                out[m] = out.get(m, 0) + c1 * c2
        return Dim(out)

    def __floordiv__(self, other: Dim | int) -> Dim:
        divisor = Dim.of(other)
        exact = self.divide(divisor)
        if exact is not None:
            return exact
        d = divisor.constant
        if d is not None and d > 0:  # what divides exactly leaves the division: (4*N+3)//2 = 2*N+1
            if self.constant is not None:
                return Dim.of(self.constant // d)
            whole = Dim({m: c // d for m, c in self.terms if c % d == 0 or not m})
            rest = self - whole * d
            return whole + (_floor(rest, d) if rest.constant is None else Dim.of(rest.constant // d))
        return Dim({(f"(({self})//({divisor}))",): 1})

    def divide(self, divisor: Dim) -> Dim | None:
        """Return the exact quotient by a one-term dimension, or None."""
        if self == divisor and self.terms:
            return Dim.of(1)
        if len(divisor.terms) != 1:
            return None
        monomial, d = divisor.terms[0]
        out: dict[tuple[str, ...], int] = {}
        for m, c in self.terms:
            left = list(m)
            for atom in monomial:
                if atom not in left:
                    return None
                left.remove(atom)
            if c % d:
                return None
            out[tuple(left)] = c // d
        return Dim(out)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(self.terms)

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts = []
        for monomial, c in sorted(self.terms, key=lambda t: (not t[0], t[0])):
            factors = ([] if c == 1 and monomial else [str(c)]) + list(monomial)
            parts.append("*".join(factors))
        return "+".join(parts).replace("+-", "-")

    def __repr__(self) -> str:
        return f"Dim({self})"


_floors: dict[str, tuple[Dim, int]] = {}


def _floor(rest: Dim, d: int) -> Dim:
    """Return the floor of a sum over a number; a floor of a floor is one floor: ((N//2)+1)//2 = (N+2)//4."""
    names = [(m, c) for m, c in rest.terms if m]
    if len(names) == 1 and names[0][1] == 1 and len(names[0][0]) == 1 and names[0][0][0] in _floors:
        inner, m = _floors[names[0][0][0]]
        offset = rest - Dim({names[0][0]: 1})
        rest, d = inner + offset * m, d * m
    text = f"(({rest})//{d})"
    _floors[text] = (rest, d)
    return Dim({(text,): 1})


def presumably_equal(a: Dim, b: Dim) -> bool:
    """Whether two sizes are equal, or are for every input of the sizes that image networks are made for.

    Sizes that went through different strides and came together again differ in form: ``((N+1)//2)`` and ``(N//2)``.
    What is built on that must check the sizes when it runs.
    """
    if a == b:
        return True
    if a.constant is not None or b.constant is not None or a.names != b.names:
        return False
    for step in (_STRIDES, 3 * _STRIDES):
        sizes = {name: step * (k + 1) for k, name in enumerate(sorted(a.names))}
        one = a.at(sizes)
        if one is None or one != b.at(sizes):
            return False
    return True


_STRIDES = 1 << 10
"""All strides of an image network, multiplied, divide this."""

_counter = 0


def unknown() -> Dim:
    """Return a new dimension that equals nothing else."""
    global _counter
    _counter += 1
    return Dim.of(f"?{_counter}")


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> Dim:
    return Dim.of(text)


def parse(value: object) -> Dim:
    """Read a dimension of a model; negative, empty and ``?`` ones are anonymous."""
    text = getattr(value, "value", value)
    if isinstance(text, int):
        return Dim.of(text) if text >= 0 else unknown()
    if text is None or text == "" or str(text).startswith("?"):
        return unknown()
    return _parse_text(str(text))
