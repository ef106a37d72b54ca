"""Rewrites written as formulas: ``Rewrite("1 / (1 + exp(x))", "sigmoid(-x)")``.

Letters stand for any expression, c and k for constants. Sums and products match in both orders.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator

from opforge.expr.nodes import Node, ValueType, constant

__all__ = ["Binding", "Make", "Rewrite"]

Binding = dict[str, Node]
Make = Callable[..., Node]
"""Builds an instruction: ``make(name, *operands)``."""

_CONSTANTS = frozenset("ck")
_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "eq", "ne", "logical_and", "logical_or", "logical_xor"})
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.USub: "neg",
}


class Rewrite:
    """One row of a table of rewrites."""

    def __init__(self, before: str, after: str, when: Callable[[Binding], bool] | None = None) -> None:
        """Parse both sides; ``when`` decides on the bound letters."""
        self.before = before
        self.after = after
        self.when = when
        self._pattern = ast.parse(before, mode="eval").body
        self._result = ast.parse(after, mode="eval").body
        self.root = _name(self._pattern)

    def __repr__(self) -> str:
        """Both sides."""
        return f"{self.before} -> {self.after}"

    def apply(self, node: Node, make: Make) -> Node | None:
        """The node rewritten, or None where it does not match."""
        for binding in _match(self._pattern, node, {}):
            if self.when is None or self.when(binding):
                type_ = node.type if node.type.is_float else node.args[-1].type
                return _build(self._result, binding, type_, make)
        return None


def _name(pattern: ast.AST) -> str:
    if isinstance(pattern, ast.Call) and isinstance(pattern.func, ast.Name):
        return pattern.func.id
    if isinstance(pattern, ast.BinOp | ast.UnaryOp):
        return _OPERATORS[type(pattern.op)]
    raise ValueError(f"a pattern is an operation, not {ast.dump(pattern)}")


def _operands(pattern: ast.AST) -> list[ast.expr]:
    if isinstance(pattern, ast.Call):
        return pattern.args
    if isinstance(pattern, ast.BinOp):
        return [pattern.left, pattern.right]
    assert isinstance(pattern, ast.UnaryOp)
    return [pattern.operand]


def _literal(pattern: ast.AST) -> float | None:
    if isinstance(pattern, ast.Constant):
        return float(pattern.value)  # type: ignore[arg-type]
    if isinstance(pattern, ast.UnaryOp) and isinstance(pattern.operand, ast.Constant):
        return -float(pattern.operand.value)  # type: ignore[arg-type]
    return None


def _match(pattern: ast.AST, node: Node, binding: Binding) -> Iterator[Binding]:
    literal = _literal(pattern)
    if literal is not None:
        # 0.0 and -0.0 are different numbers here.
        same = node.is_constant and node.value == literal and math.copysign(1, node.value) == math.copysign(1, literal)
        if same and node.type is not ValueType.BOOL:
            yield binding
    elif isinstance(pattern, ast.Name):
        letter = pattern.id
        if letter in binding:
            if binding[letter] is node:
                yield binding
        elif letter not in _CONSTANTS or (node.is_constant and node.type.is_float):
            yield {**binding, letter: node}
    elif node.op == _name(pattern):
        operands = _operands(pattern)
        orders = [node.args]
        if node.op in _COMMUTATIVE and node.args[0] is not node.args[1]:
            orders.append((node.args[1], node.args[0]))
        for args in orders:
            yield from _match_all(operands, args, binding)


def _match_all(patterns: list[ast.expr], nodes: tuple[Node, ...], binding: Binding) -> Iterator[Binding]:
    if not patterns:
        yield binding
        return
    for first in _match(patterns[0], nodes[0], binding):
        yield from _match_all(patterns[1:], nodes[1:], first)


def _build(result: ast.AST, binding: Binding, type_: ValueType, make: Make) -> Node:
    literal = _literal(result)
    if literal is not None:
        return constant(literal, type_)
    if isinstance(result, ast.Name):
        return binding[result.id]
    return make(_name(result), *(_build(operand, binding, type_, make) for operand in _operands(result)))
