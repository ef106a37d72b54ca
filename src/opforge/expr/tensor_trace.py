"""Tracing a kernel operator's gradient: operators called on symbolic tensors become steps of a gradient program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from opforge.errors import OpforgeError, SchemaError
from opforge.expr.formulas import Formula
from opforge.expr.nodes import ValueType, attribute, input_, substitute
from opforge.expr.trace import Expr, as_node, caller
from opforge.schema import NONE, DType, ForwardAttribute, GradientProgram, Operand, Operator, Signature, Step

__all__ = ["Named", "SymbolicAttribute", "SymbolicTensor", "call", "trace_gradient"]


class Tracer:
    """The steps of one gradient."""

    def __init__(self, where: str) -> None:
        """Start without steps."""
        self.where = where
        self.steps: list[Step] = []
        self.count = 0


class SymbolicTensor:
    """A tensor of a gradient that is being traced; only operators take it."""

    __slots__ = ("name", "operand", "tracer")
    __array_ufunc__ = None

    def __init__(self, tracer: Tracer, operand: Operand, name: str) -> None:
        """Stand for an operand, called by a name in messages."""
        self.tracer = tracer
        self.operand = operand
        self.name = name

    def __repr__(self) -> str:
        """The name."""
        return f"<symbolic tensor {self.name}>"

    def _no_arithmetic(self, *_: object) -> NoReturn:
        raise SchemaError(
            "gradients of kernel operators are made of operator calls, not of arithmetic on tensors",
            where=caller(),
            got=repr(self),
            hint="declare a small formula operator for it and call that",
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_arithmetic
    __pow__ = __matmul__ = __neg__ = __bool__ = __float__ = __iter__ = __getitem__ = _no_arithmetic


class SymbolicAttribute:
    """The value of a forward attribute; may be passed on to operators."""

    def __init__(self, name: str, kind: str) -> None:
        """Name the attribute and its kind."""
        self.name = name
        self.kind = kind


class Named:
    """Values by parameter name, as items and as attributes; no methods, so that every name is free."""

    def __init__(self, what: str, values: Mapping[str, Any]) -> None:
        """Hold the values; ``what`` names them in messages."""
        self._what = what
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a symbolic tensor or attribute
        if name not in self._values:
            known = ", ".join(self._values) or "none"
            raise SchemaError(f"there is no {self._what} {name!r}", where=caller(), expected=known)
        return self._values[name]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a symbolic tensor or attribute
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values


def call(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Records an operator call; the host interface of `opforge.schema.hosts`.

    On tensors of a formula that is being traced, a formula operator becomes part of that formula.
    """
    if any(isinstance(value, Expr) for value in tensors):
        return _inline(operator, tensors, attributes)
    operands: list[Operand] = []
    tracer: Tracer | None = None
    for parameter, value in zip(operator.signature.inputs, tensors, strict=True):
        if parameter.variadic and isinstance(value, tuple) and len(value) == 1:
            value = value[0]
        if value is None:
            operands.append(NONE)
        elif isinstance(value, SymbolicTensor):
            operands.append(value.operand)
            tracer = value.tracer
        else:
            raise SchemaError(
                f"the input {parameter.name} is no tensor of the gradient",
                where=f"{operator.qualified_name} called at {caller()}",
                expected="an input, an output, the gradient of an output, or the result of an operator",
                got=type(value).__name__,
            )
    assert tracer is not None, "a call is routed here by a symbolic tensor"
    literals = {k: v for k, v in attributes.items() if not isinstance(v, SymbolicAttribute)}
    forward = {k: v for k, v in attributes.items() if isinstance(v, SymbolicAttribute)}
    given: list[tuple[str, Any]] = []
    for a in operator.signature.attributes:
        if a.name in forward:
            if forward[a.name].kind != a.kind:
                raise SchemaError(
                    f"the attribute {a.name} has another kind than {forward[a.name].name}",
                    where=f"{operator.qualified_name} called at {caller()}",
                    expected=a.kind,
                    got=forward[a.name].kind,
                )
            given.append((a.name, ForwardAttribute(forward[a.name].name)))
        elif a.name in literals:
            given.append((a.name, a.coerce(literals[a.name], operator.qualified_name)))
    unknown = set(attributes) - {a.name for a in operator.signature.attributes}
    missing = [a.name for a in operator.signature.attributes if a.required and a.name not in attributes]
    if unknown or missing:
        raise SchemaError(
            f"{'unknown' if unknown else 'missing'} attribute {', '.join(sorted(unknown) or missing)}",
            where=f"{operator.qualified_name} called at {caller()}",
            expected=", ".join(a.name for a in operator.signature.attributes) or "no attributes",
        )
    numbers = tuple(range(tracer.count, tracer.count + len(operator.signature.outputs)))
    tracer.count += len(numbers)
    key = (operator.domain, operator.name, operator.since_version)
    tracer.steps.append(Step(*key, tuple(operands), tuple(given), numbers))
    results = tuple(
        SymbolicTensor(tracer, Operand("v", n), f"{output.name} of {operator.name}")
        for n, output in zip(numbers, operator.signature.outputs, strict=True)
    )
    return results[0] if len(results) == 1 else results


def _inline(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    formula = operator.formula
    if not isinstance(formula, Formula):
        raise SchemaError(
            "a kernel operator cannot be part of a formula",
            where=f"{operator.qualified_name} called at {caller()}",
            hint="call it on tensors, beside the formula operator",
        )
    if any(o.sum_to is not None for o in formula.outputs):
        raise SchemaError(
            "a gradient operator sums over dimensions, so it cannot be part of a formula",
            where=f"{operator.qualified_name} called at {caller()}",
        )
    unknown = set(attributes) - {a.name for a in formula.attributes}
    missing = {a.name for a in formula.attributes if a.default is None} - set(attributes)
    if unknown or missing:
        raise SchemaError(
            f"{'unknown' if unknown else 'missing'} attribute {', '.join(sorted(unknown or missing))}",
            where=f"{operator.qualified_name} called at {caller()}",
            expected=", ".join(a.name for a in formula.attributes) or "no attributes",
        )
    leaves = {input_(k): as_node(value, ValueType.T) for k, value in enumerate(tensors)}
    for k, a in enumerate(formula.attributes):
        leaves[attribute(k)] = as_node(attributes.get(a.name, a.default), ValueType.T)
    results = tuple(Expr(node) for node in substitute([o.node for o in formula.outputs], leaves))
    return results[0] if len(results) == 1 else results


def trace_gradient(
    function: Callable[..., Any], signature: Signature, types: Mapping[str, Sequence[DType]], where: str
) -> str:
    """The gradient program of ``function(inputs, outputs, grad_outputs, attrs) -> {input: tensor or None}``."""
    tracer = Tracer(where)

    def tensors(what: str, kind: str, names: Sequence[str]) -> Named:
        return Named(what, {n: SymbolicTensor(tracer, Operand(kind, k), f"{what} {n}") for k, n in enumerate(names)})

    inputs = tensors("input", "i", [p.name for p in signature.inputs])
    names = [p.name for p in signature.outputs]
    outputs, gradients = tensors("output", "o", names), tensors("gradient of output", "g", names)
    attributes = Named("attribute", {a.name: SymbolicAttribute(a.name, a.kind) for a in signature.attributes})
    try:
        results = function(inputs, outputs, gradients, attributes)
    except OpforgeError:
        raise
    except Exception as error:
        code = function.__code__
        place = f"{where}, gradient at {code.co_filename}:{code.co_firstlineno}"
        raise SchemaError(f"the gradient cannot be traced: {type(error).__name__}: {error}", where=place) from error
    if not isinstance(results, Mapping) or set(results) - set(inputs):
        got = ", ".join(map(str, results)) if isinstance(results, Mapping) else type(results).__name__
        raise SchemaError(
            "the gradient returns something else than a gradient per input",
            where=where,
            expected="a dict with the keys " + ", ".join(inputs),
            got=got,
        )
    operands = []
    for p in signature.inputs:
        # Integer inputs have no gradient, so they may be left out; floating ones must be named.
        floating = any(d.is_float for d in types.get(p.type, [p.dtype] if p.dtype else []))
        if p.name not in results and floating:
            raise SchemaError(
                f"the gradient says nothing of the input {p.name}",
                where=where,
                hint=f'return {{"{p.name}": None}} if it has none',
            )
        value = results.get(p.name)
        if value is not None and not isinstance(value, SymbolicTensor):
            raise SchemaError(
                f"the gradient of {p.name} is no tensor of the gradient", where=where, got=type(value).__name__
            )
        operands.append(NONE if value is None else value.operand)
    program = GradientProgram(tuple(tracer.steps), tuple(operands)).prune()
    program.check(signature, where=where)
    return str(program)
