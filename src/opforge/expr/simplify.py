"""Passes over expressions: folding and rewriting by the tables of `rewrites`, and the last touches before lowering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from opforge.expr import semantics
from opforge.expr._generated.opcodes import OPCODES
from opforge.expr.nodes import Node, ValueType, constant, op, postorder, rebuild, substitute
from opforge.expr.patterns import Rewrite
from opforge.expr.rewrites import EXPANSIONS, REWRITES

__all__ = ["finish", "fuse_fma", "simplify"]


def _by_root(rows: Iterable[Rewrite]) -> dict[str, list[Rewrite]]:
    table: dict[str, list[Rewrite]] = {}
    for row in rows:
        table.setdefault(row.root, []).append(row)
    return table


_SIMPLIFY, _EXPAND = _by_root(REWRITES), _by_root(EXPANSIONS)


def simplify(roots: Sequence[Node]) -> list[Node]:
    """Folds constants in float64 and applies the rewrites, from the operands up, until none fits."""
    return rebuild(roots, lambda old, new: _reduce(new, _SIMPLIFY))


def finish(roots: Sequence[Node]) -> list[Node]:
    """What is done to simplified expressions once no more derivatives are taken: they are about to be executed."""
    roots = _share_exponentials(list(roots))
    return fuse_fma(rebuild(roots, lambda old, new: _reduce(new, _EXPAND)))


def _reduce(node: Node, table: dict[str, list[Rewrite]]) -> Node:
    folded = _fold(node)
    if folded is not None:
        return folded
    for row in table.get(node.op, ()):
        # Operands are reduced already, so every node that a row makes can be reduced on the spot.
        result = row.apply(node, lambda name, *args: _reduce(op(name, *args), table))
        if result is not None:
            return result
    return node


def _fold(node: Node) -> Node | None:
    """The constant that an operation on constants gives; integers are left to run time."""
    if node.op not in OPCODES or not all(a.is_constant for a in node.args) or node.op.startswith("round_"):
        return None
    types = {node.type, *(a.type for a in node.args)}
    if any(not t.is_float and t is not ValueType.BOOL for t in types) or ValueType.F32 in types:
        return None
    values = [bool(a.value) if a.type is ValueType.BOOL else a.value for a in node.args]
    return constant(float(semantics.evaluate(node.op, values, node.type)), node.type)


def _share_exponentials(roots: list[Node]) -> list[Node]:
    """Where both sigmoid(u) and sigmoid(-u) are wanted, computes them from one exp(-|u|).

    With e = exp(-|u|) they are 1 / (1 + e) and e / (1 + e), in the order of u's sign: no overflow, no cancellation.
    """
    while True:
        pair = _opposite_sigmoids(roots)
        if pair is None:
            return roots
        first, second = pair
        u = first.args[0]
        small = op("exp", op("neg", op("abs", u)))
        large = op("reciprocal", op("add", constant(1.0, u.type), small))
        rest = op("mul", small, large)
        positive = op("ge", u, constant(0.0, u.type))
        roots = substitute(
            roots,
            {
                first: op("select", positive, large, rest),
                second: op("select", positive, rest, large),
                op("mul", first, second): op("mul", large, rest),
                op("mul", second, first): op("mul", large, rest),
            },
        )


def _opposite_sigmoids(roots: list[Node]) -> tuple[Node, Node] | None:
    """The first two nodes sigmoid(u) and sigmoid(-u)."""
    sigmoids: dict[Node, Node] = {}
    for node in postorder(roots):
        if node.op == "sigmoid":
            opposite = sigmoids.get(_reduce(op("neg", node.args[0]), _SIMPLIFY))
            if opposite is not None:
                return opposite, node
            sigmoids[node.args[0]] = node
    return None


def fuse_fma(roots: Sequence[Node]) -> list[Node]:
    """Fuses a product into the sum that alone reads it: a * b + c -> fma(a, b, c), c - a * b -> fnma(a, b, c).

    Where both terms of a sum are such products, the right one is fused. Uses are counted before anything is fused,
    so that the choice does not depend on the order of visits.
    """
    uses = Counter(id(a) for node in postorder(roots) for a in node.args)
    uses.update(id(root) for root in roots)
    return rebuild(roots, lambda old, new: _fused(old, new, uses))


def _fused(old: Node, new: Node, uses: Counter[int]) -> Node:
    if old.op not in ("add", "sub") or not old.type.is_float:
        return new
    for k in (1, 0):
        product, rest = new.args[k], new.args[1 - k]
        if product.op not in ("mul", "square") or uses[id(old.args[k])] != 1:
            continue
        a, b = product.args if product.op == "mul" else product.args * 2
        if old.op == "add":
            return op("fma", a, b, rest)
        if k == 1:
            return op("fnma", a, b, rest)
        if rest.is_constant:
            return op("fma", a, b, constant(-rest.value, rest.type))
    return new
