"""Dimension expressions of the .bin format: text to table rows and back.

A dimension is a number, an expression over symbols (``"N"``, ``"2*N+1"``, ``"N//2"``, ``"ceildiv(N, 2)"``,
``"min(N, 4)"``, ``"max(N, 4)"``) or None. Symbols that are no Python names (ONNX allows any text) are kept
whole when the text does not parse as an expression.
"""

from __future__ import annotations

import ast

from opforge.bin.layout import DimensionOp
from opforge.bin.program import Dim
from opforge.errors import ArgumentError

__all__ = ["DimensionTable", "dimension_text"]

_BINARY = {
    ast.Add: DimensionOp.ADD,
    ast.Sub: DimensionOp.SUB,
    ast.Mult: DimensionOp.MUL,
    ast.FloorDiv: DimensionOp.FLOORDIV,
}
_CALLS = {
    "ceildiv": DimensionOp.CEILDIV,
    "min": DimensionOp.MIN,
    "max": DimensionOp.MAX,
}
_SIGNS = {DimensionOp.ADD: "+", DimensionOp.SUB: "-", DimensionOp.MUL: "*", DimensionOp.FLOORDIV: "//"}
_STRENGTH = {DimensionOp.ADD: 1, DimensionOp.SUB: 1, DimensionOp.MUL: 2, DimensionOp.FLOORDIV: 2}
_LARGEST = 2**46


class DimensionTable:
    """Collects expressions, each distinct row once; ``strings`` gives text ids for symbols."""

    def __init__(self, strings: dict[str, int]) -> None:
        """Share the text table of the file; new symbols are added to it."""
        self._strings = strings
        self._rows: dict[tuple[int, int, int], int] = {}

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """Rows (op, a, b) in the order of their ids."""
        return list(self._rows)

    def add(self, dim: Dim, where: str) -> int:
        """Return the id of a dimension, adding the rows that it needs."""
        if dim is None:
            return self._row(DimensionOp.RUNTIME, 0, 0)
        if isinstance(dim, int):
            return self._number(int(dim), where)
        try:
            tree = ast.parse(dim.strip(), mode="eval").body
        except SyntaxError:
            return self._symbol(dim)
        return self._expression(tree, dim, where)

    def _expression(self, tree: ast.expr, text: str, where: str) -> int:
        match tree:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return self._number(value, where)
            case ast.Name(id=name):
                return self._symbol(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                a, b = self._expression(left, text, where), self._expression(right, text, where)
                return self._row(_BINARY[type(op)], a, b)
            case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in _CALLS:
                a, b = self._expression(left, text, where), self._expression(right, text, where)
                return self._row(_CALLS[name], a, b)
            case _:
                return self._symbol(text)

    def _number(self, value: int, where: str) -> int:
        if not 0 <= value <= _LARGEST:
            raise ArgumentError(
                "a dimension is out of range", where=where, expected=f"0 to {_LARGEST}, a symbol or None", got=value
            )
        return self._row(DimensionOp.NUMBER, 0, value)

    def _symbol(self, name: str) -> int:
        return self._row(DimensionOp.SYMBOL, self._strings.setdefault(name, len(self._strings)), 0)

    def _row(self, op: DimensionOp, a: int, b: int) -> int:
        return self._rows.setdefault((int(op), a, b), len(self._rows))


def dimension_text(rows: list[tuple[int, int, int]], strings: list[str], index: int) -> Dim:
    """Turn a row back into a number, an expression or None."""
    op, _, b = rows[index]
    if op == DimensionOp.NUMBER:
        return b
    if op == DimensionOp.RUNTIME:
        return None
    return _text(rows, strings, index)


def _text(rows: list[tuple[int, int, int]], strings: list[str], index: int) -> str:
    op, a, b = rows[index]
    if op == DimensionOp.NUMBER:
        return str(b)
    if op == DimensionOp.SYMBOL:
        return strings[a]
    if op == DimensionOp.RUNTIME:
        return "?"
    left, right = _text(rows, strings, a), _text(rows, strings, b)
    if op in (DimensionOp.CEILDIV, DimensionOp.MIN, DimensionOp.MAX):
        return f"{DimensionOp(op).name.lower()}({left}, {right})"
    strength = _STRENGTH[DimensionOp(op)]
    if _strength(rows, a) < strength:
        left = f"({left})"
    if _strength(rows, b) <= strength:
        right = f"({right})"
    return f"{left}{_SIGNS[DimensionOp(op)]}{right}"


def _strength(rows: list[tuple[int, int, int]], index: int) -> int:
    return _STRENGTH.get(DimensionOp(rows[index][0]), 3)
