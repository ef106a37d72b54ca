"""Dimensions of the signature language: what stands between the brackets of ``T[m, 2*n+1, *S]``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opforge.schema.lexer import MAX_DEPTH, Cursor

__all__ = [
    "AnyDim",
    "Binary",
    "Broadcast",
    "Dim",
    "DimensionError",
    "Integer",
    "Name",
    "Rest",
    "evaluate",
    "linear",
    "names",
    "parse_dim",
    "parse_expression",
]

MAX_DIMENSION: Final = 2**63 - 1


class DimensionError(Exception):
    """A dimension cannot be computed; the message says why. Callers turn it into an ArgumentError."""


@dataclass(frozen=True)
class Integer:
    """A fixed size."""

    value: int

    def __str__(self) -> str:
        """Give the digits."""
        return str(self.value)


@dataclass(frozen=True)
class Name:
    """A named size."""

    name: str

    def __str__(self) -> str:
        """Give the name."""
        return self.name


@dataclass(frozen=True)
class AnyDim:
    """``_``: any size; in an output, a size that depends on the data."""

    def __str__(self) -> str:
        """Give the underscore."""
        return "_"


@dataclass(frozen=True)
class Rest:
    """``*S``: any number of dimensions."""

    name: str

    def __str__(self) -> str:
        """Give the name with its star."""
        return f"*{self.name}"


@dataclass(frozen=True)
class Broadcast:
    """``bcast(A, B)``: the NumPy broadcast of named runs of dimensions."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        """Give the call."""
        return f"bcast({', '.join(self.names)})"


@dataclass(frozen=True)
class Binary:
    """An integer operation; ``op`` is one of ``+ - * //``."""

    op: str
    left: Integer | Name | Binary
    right: Integer | Name | Binary

    def __str__(self) -> str:
        """Write with as few parentheses as keep the tree."""
        strength = _STRENGTH[self.op]
        left, right = str(self.left), str(self.right)
        if isinstance(self.left, Binary) and _STRENGTH[self.left.op] < strength:
            left = f"({left})"
        if isinstance(self.right, Binary) and _STRENGTH[self.right.op] <= strength:
            right = f"({right})"
        return f"{left}{self.op}{right}"


Expression = Integer | Name | Binary
Dim = Integer | Name | Binary | AnyDim | Rest | Broadcast

_STRENGTH: Final = {"+": 1, "-": 1, "*": 2, "//": 2}
_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
}


def parse_dim(cursor: Cursor) -> Dim:
    """Read one dimension."""
    if cursor.accept("*"):
        return Rest(cursor.name())
    if cursor.kind == "name" and cursor.token == "_":
        cursor.advance()
        return AnyDim()
    if cursor.kind == "name" and cursor.token == "bcast":
        cursor.advance()
        cursor.expect("(")
        found = [cursor.name()]
        while cursor.accept(","):
            found.append(cursor.name())
        if not cursor.accept(")"):
            cursor.fail("',' or ')'")
        return Broadcast(tuple(found))
    return parse_expression(cursor)


def parse_expression(cursor: Cursor, depth: int = 0) -> Expression:
    """Read an integer expression."""
    return _operations(cursor, _factor(cursor, depth), depth)


def _operations(cursor: Cursor, left: Expression, depth: int) -> Expression:
    left = _products(cursor, left, depth)
    while cursor.at("+") or cursor.at("-"):
        op = cursor.advance()
        left = Binary(op, left, _products(cursor, _factor(cursor, depth), depth))
    return left


def _products(cursor: Cursor, left: Expression, depth: int) -> Expression:
    while cursor.at("*") or cursor.at("//"):
        op = cursor.advance()
        left = Binary(op, left, _factor(cursor, depth))
    return left


def _factor(cursor: Cursor, depth: int) -> Expression:
    if depth > MAX_DEPTH:
        cursor.fail(f"at most {MAX_DEPTH} nested parentheses")
    if cursor.accept("-"):
        factor = _factor(cursor, depth + 1)
        return Integer(-factor.value) if isinstance(factor, Integer) else Binary("*", Integer(-1), factor)
    if cursor.accept("("):
        inner = parse_expression(cursor, depth + 1)
        cursor.expect(")")
        return inner
    if cursor.kind == "int":
        return Integer(cursor.integer())
    if cursor.kind == "name" and cursor.token not in ("_", "bcast"):
        return Name(cursor.advance())
    cursor.fail("a dimension")


def names(dim: Dim) -> Iterator[str]:
    """Give the names that a dimension reads, in order; those of ``*S`` and ``bcast`` too."""
    if isinstance(dim, Name | Rest):
        yield dim.name
    elif isinstance(dim, Broadcast):
        yield from dim.names
    elif isinstance(dim, Binary):
        yield from names(dim.left)
        yield from names(dim.right)


def linear(dim: Expression) -> tuple[int, str, int] | None:
    """Read an expression as ``a*n+b``: gives (a, n, b) for one name n with a not 0, else None."""
    parts = _linear(dim)
    if parts is None or parts[1] is None or parts[0] == 0:
        return None
    return parts[0], parts[1], parts[2]


def _linear(dim: Expression) -> tuple[int, str | None, int] | None:
    if isinstance(dim, Integer):
        return 0, None, dim.value
    if isinstance(dim, Name):
        return 1, dim.name, 0
    left, right = _linear(dim.left), _linear(dim.right)
    if left is None or right is None or dim.op == "//":
        return None
    if dim.op == "*":
        if left[1] is not None and right[1] is not None:
            return None
        factor, other = (right[2], left) if right[1] is None else (left[2], right)
        result = other[0] * factor, other[1], other[2] * factor
    else:
        if left[1] is not None and right[1] is not None and left[1] != right[1]:
            return None
        sign = 1 if dim.op == "+" else -1
        result = left[0] + sign * right[0], left[1] or right[1], left[2] + sign * right[2]
    fits = all(-MAX_DIMENSION - 1 <= number <= MAX_DIMENSION for number in (result[0], result[2]))
    return result if fits else None


def evaluate(dim: Expression, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - int, symbolic int or None
    """Compute an expression; None (unknown) in gives None out.

    Raises:
        DimensionError: division by zero, or a result of more than 64 bits.
    """
    if isinstance(dim, Integer):
        return dim.value
    if isinstance(dim, Name):
        return values[dim.name]
    left, right = evaluate(dim.left, values), evaluate(dim.right, values)
    if isinstance(right, int) and right == 0 and dim.op == "//":
        raise DimensionError("division by zero")
    if left is None or right is None:
        return None
    result = _OPERATIONS[dim.op](left, right)
    if isinstance(result, int) and not -MAX_DIMENSION - 1 <= result <= MAX_DIMENSION:
        raise DimensionError("more than 64 bits")
    return result
