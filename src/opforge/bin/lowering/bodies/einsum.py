"""Einsum as products of two operands at a time: transposes, matrix products (batched), and sums of single indices."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from opforge.bin.lowering.bodies._writer import Body
from opforge.errors import ArgumentError
from opforge.passes import _edit
from opforge.passes.infer_shapes import dims_of

__all__ = ["BODIES"]

OWN = "".join(chr(c) for c in range(0x391, 0x391 + 16))
"""Letters that stand for the dimensions of an ellipsis, the last ones first used."""


@dataclass
class _Term:
    """A tensor, one letter for each axis."""

    value: str
    letters: str


def _fail(node: ir.Node, expected: str) -> ArgumentError:
    equation = _edit.attribute(node, "equation", "")
    return ArgumentError(
        "the equation does not fit the inputs", where=f"node {node.name!r} (Einsum)", expected=expected, got=equation
    )


def _letters(text: str, rank: int, node: ir.Node) -> str:
    """Write an operand's ellipsis out; its dimensions are counted from the right."""
    before, dots, after = text.partition("...")
    if "." in before + after or (not (before + after).isalpha() and before + after):
        raise _fail(node, "letters, commas, one arrow and an ellipsis for each operand")
    open_axes = rank - len(before) - len(after)
    if open_axes < 0 or (not dots and open_axes) or open_axes > len(OWN):
        raise _fail(node, "one letter for each dimension of an operand")
    return before + OWN[len(OWN) - open_axes :] + after


def _parse(node: ir.Node) -> tuple[list[str], str] | None:
    ranks = [dims_of(v) for v in node.inputs]
    equation = "".join(str(_edit.attribute(node, "equation", "")).split())
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if any(r is None for r in ranks):
        return None
    if len(texts) != len(ranks):
        raise _fail(node, f"{len(ranks)} operands")
    terms = [_letters(t, len(r or ()), node) for t, r in zip(texts, ranks, strict=True)]
    everything = "".join(terms)
    shared = sorted({c for c in everything if c in OWN})
    if arrow:
        before, dots, after = right.partition("...")
        result = before + ("".join(shared) if dots else "") + after
    else:
        single = sorted(c for c in set(everything) if everything.count(c) == 1 and c not in OWN)
        result = "".join(shared) + "".join(single)
    if len(set(result)) != len(result) or not set(result) <= set(everything):
        raise _fail(node, "each letter of the result once, and in an operand")
    return terms, result


class _Product:
    def __init__(self, body: Body) -> None:
        self.b = body

    def sizes(self, term: _Term, letters: str) -> list[str]:
        """One-element lists with the sizes of ``letters``."""
        return [
            self.b.op("Shape", term.value, start=term.letters.index(c), end=term.letters.index(c) + 1) for c in letters
        ]

    def diagonal(self, term: _Term) -> _Term:
        """Keep the diagonal of axes with the same letter: a product with the identity, summed over one of them."""
        for letter in dict.fromkeys(term.letters):
            while term.letters.count(letter) > 1:
                first = term.letters.index(letter)
                second = term.letters.index(letter, first + 1)
                others = [k for k in range(len(term.letters)) if k not in (first, second)]
                moved = self.b.op("Transpose", term.value, perm=[*others, first, second])
                size = self.b.op("Shape", term.value, start=first, end=first + 1)
                square = self.b.op("ConstantOfShape", self.b.op("Concat", size, size, axis=0))
                eye = self.b.op("CastLike", self.b.op("EyeLike", square), moved)
                # Where, not a product: what lies beside the diagonal may be infinite.
                kept = self.b.op("Where", self.b.cast(eye, ir.DataType.BOOL), moved, self.b.number(0.0, moved))
                value = self.b.op("ReduceSum", kept, self.b.integers(-1), keepdims=0)
                term = _Term(value, "".join(term.letters[k] for k in others) + letter)
        return term

    def summed(self, term: _Term, keep: str) -> _Term:
        """Sum the axes whose letters nobody needs."""
        gone = [k for k, c in enumerate(term.letters) if c not in keep]
        if not gone:
            return term
        value = self.b.op("ReduceSum", term.value, self.b.integers(*gone), keepdims=0)
        return _Term(value, "".join(c for c in term.letters if c in keep))

    def ordered(self, term: _Term, letters: str) -> str:
        """The tensor with its axes in another order; letters that it lacks become axes of size 1."""
        own = "".join(c for c in letters if c in term.letters)
        perm = [term.letters.index(c) for c in own]
        value = term.value if perm == sorted(perm) else self.b.op("Transpose", term.value, perm=perm)
        missing = [k for k, c in enumerate(letters) if c not in own]
        return self.b.op("Unsqueeze", value, self.b.integers(*missing)) if missing else value

    def times(self, x: _Term, y: _Term, keep: str) -> _Term:
        """Multiply two operands and sum what only they have."""
        x, y = self.summed(x, keep + y.letters), self.summed(y, keep + x.letters)
        both = [c for c in x.letters if c in y.letters]
        inner = "".join(c for c in both if c not in keep)
        batch = "".join(c for c in both if c in keep)
        rows = "".join(c for c in x.letters if c not in both)
        columns = "".join(c for c in y.letters if c not in both)
        if not inner:
            letters = batch + rows + columns
            return _Term(self.b.op("Mul", self.ordered(x, letters), self.ordered(y, letters)), letters)
        product = self.b.op("MatMul", self.matrix(x, batch, rows, inner), self.matrix(y, batch, inner, columns))
        if len(rows) != 1 or len(columns) != 1:
            # A letter that both have may count 1 on one side: the product knows its size.
            sizes = [self.b.op("Shape", product, end=len(batch))] if batch else []
            shape = [*sizes, *self.sizes(x, rows), *self.sizes(y, columns)]
            target = self.b.op("Concat", *shape, axis=0) if shape else self.b.integers()
            product = self.b.op("Reshape", product, target, allowzero=1)
        return _Term(product, batch + rows + columns)

    def matrix(self, term: _Term, batch: str, first: str, second: str) -> str:
        """[batch..., first, second], each group of letters one axis."""
        value = self.ordered(term, batch + first + second)
        if len(first) == 1 and len(second) == 1:
            return value
        shape = [*self.sizes(term, batch), self.size(term, first), self.size(term, second)]
        return self.b.op("Reshape", value, self.b.op("Concat", *shape, axis=0), allowzero=1)

    def size(self, term: _Term, letters: str) -> str:
        """The product of the sizes of ``letters`` as a list of one."""
        sizes = self.sizes(term, letters)
        if not sizes:
            return self.b.integers(1)
        result = sizes[0]
        for size in sizes[1:]:
            result = self.b.op("Mul", result, size)
        return result


def _einsum(b: Body, node: ir.Node) -> list[str] | None:
    parsed = _parse(node)
    if parsed is None:
        return None
    letters, result = parsed
    p = _Product(b)
    terms = [p.diagonal(_Term(v, t)) for v, t in zip(b.inputs, letters, strict=True)]
    term = terms[0]
    for k, other in enumerate(terms[1:], start=1):
        term = p.times(term, other, result + "".join(t.letters for t in terms[k + 1 :]))
    term = p.summed(term, result)
    value = p.ordered(term, result)
    return [value if value not in b.inputs else b.op("Identity", value)]


BODIES = {("", "Einsum"): _einsum}
