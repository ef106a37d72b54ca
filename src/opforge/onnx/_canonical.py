"""One form for formulas that are equal by the rules of real arithmetic that authors use freely.

Sums and products are flattened and sorted, differences and quotients become sums and products, small integer powers
become repeated factors, functions of numbers become numbers. Two expressions with one form compute the same function
up to rounding; the converse does not hold, and need not. ``_unify`` compares forms, and numbers in them to float32's
accuracy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from opforge.expr import Node, semantics

__all__ = ["Form", "canonical"]

Form = tuple[Any, ...]
_LIMIT = 8


def canonical(node: Node, leaves: Mapping[Node, Form] | None = None) -> Form:
    """Return the form of an expression; ``leaves`` gives forms for inner nodes that stand for something."""
    known: dict[Node, Form] = dict(leaves or {})
    return _form(node, known)


def _form(node: Node, known: dict[Node, Form]) -> Form:
    if node not in known:
        known[node] = _RULES.get(node.op, _plain)(node, known)
    return known[node]


def _plain(node: Node, known: dict[Node, Form]) -> Form:
    if node.op in {"input", "attribute"}:
        return (node.op, node.index)
    if node.op == "constant":
        return _number(node.value)
    forms = [_form(arg, known) for arg in node.args]
    numbers = [_value(form) for form in forms]
    if node.type.is_float and node.op in semantics.NUMPY and all(n is not None for n in numbers):
        return _number(float(semantics.evaluate(node.op, numbers, node.type)))
    return (node.op, str(node.type), *forms)


def _number(value: float) -> Form:
    return ("number", float(value))


def _value(form: Form) -> float | None:
    return float(form[1]) if form[0] == "number" else None


def _product(factors: list[Form]) -> Form:
    """Multiply forms: numbers together, nested products opened, the rest sorted."""
    scale, rest = 1.0, []
    for factor in factors:
        number = _value(factor)
        if number is not None:
            scale *= number
        elif factor[0] == "product":
            scale *= factor[1]
            rest += list(factor[2:])
        else:
            rest.append(factor)
    if not rest:
        return _number(scale)
    return rest[0] if scale == 1.0 and len(rest) == 1 else ("product", scale, *sorted(rest, key=repr))


def _sum(terms: list[Form]) -> Form:
    """Add forms: numbers together, nested sums opened, equal terms joined, the rest sorted."""
    offset, weights = 0.0, Counter[Form]()
    pending = list(terms)
    while pending:
        term = pending.pop()
        number = _value(term)
        if number is not None:
            offset += number
        elif term[0] == "sum":
            pending += [_number(term[1]), *term[2:]]
        elif term[0] == "product":
            base = _product([_number(1.0), *term[2:]])
            weights[base] += term[1]
        else:
            weights[term] += 1.0  # type: ignore[assignment]
    rest = [_product([_number(weight), base]) for base, weight in weights.items() if weight != 0]
    if not rest:
        return _number(offset)
    return rest[0] if offset == 0.0 and len(rest) == 1 else ("sum", offset, *sorted(rest, key=repr))


def _negative(form: Form) -> Form:
    return _product([_number(-1.0), form])


def _power(node: Node, known: dict[Node, Form]) -> Form:
    base, exponent = (_form(arg, known) for arg in node.args)
    count = _value(exponent)
    if count is not None and count == int(count) and 1 <= count <= _LIMIT:
        return _product([base] * int(count))
    if count == 0.5:
        return ("sqrt", str(node.type), base)
    return ("pow", base, exponent)


def _quotient(node: Node, known: dict[Node, Form]) -> Form:
    top, bottom = (_form(arg, known) for arg in node.args)
    return _product([top, _inverse(bottom)])


def _inverse(form: Form) -> Form:
    number = _value(form)
    return _number(1.0 / number) if number else ("reciprocal", form)


def _clip(node: Node, known: dict[Node, Form]) -> Form:
    value, low, high = (_form(arg, known) for arg in node.args)
    return ("clip", value, low, high)


def _bound(node: Node, known: dict[Node, Form]) -> Form:
    """min(max(x, lo), hi) with numbers is a clip; operands of a lone min or max have no order."""
    forms = [_form(arg, known) for arg in node.args]
    if node.op == "min":
        for inner, other in (forms, forms[::-1]):
            if inner[0] == "max" and _value(other) is not None and any(_value(f) is not None for f in inner[1:]):
                value, low = sorted(inner[1:], key=lambda f: _value(f) is not None)
                return ("clip", value, low, other)
    return (node.op, *sorted(forms, key=repr))


_RULES = {
    "add": lambda n, k: _sum([_form(a, k) for a in n.args]),
    "sub": lambda n, k: _sum([_form(n.args[0], k), _negative(_form(n.args[1], k))]),
    "mul": lambda n, k: _product([_form(a, k) for a in n.args]),
    "div": _quotient,
    "neg": lambda n, k: _negative(_form(n.args[0], k)),
    "square": lambda n, k: _product([_form(n.args[0], k)] * 2),
    "reciprocal": lambda n, k: _inverse(_form(n.args[0], k)),
    "fma": lambda n, k: _sum([_product([_form(n.args[0], k), _form(n.args[1], k)]), _form(n.args[2], k)]),
    "fnma": lambda n, k: _sum([_negative(_product([_form(n.args[0], k), _form(n.args[1], k)])), _form(n.args[2], k)]),
    "pow": _power,
    "clip": _clip,
    "min": _bound,
    "max": _bound,
}
