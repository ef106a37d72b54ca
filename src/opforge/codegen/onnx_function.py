"""Emit an ONNX function body (FunctionProto) from a formula, so that an unmodified runtime runs the operator.

The body follows the lowered program, instruction by instruction, on tensors of the operator's type T. It is
numerically a decomposition: kernels of opforge round differently in the last bits and keep relative accuracy
in places (the tail of erfc) where ONNX has no operator for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from opforge.errors import ExportError
from opforge.expr import Program, ValueType

if TYPE_CHECKING:
    import onnx

__all__ = ["OPSET", "emit_function"]

OPSET = 18
"""ONNX opset that the bodies are written in; the newest meaning of every operator used is not newer."""

_CAST_TO = {
    ValueType.BOOL: 9,
    ValueType.I32: 6,
    ValueType.I64: 7,
    ValueType.F32: 1,
    ValueType.F64: 11,
    ValueType.U8: 2,
    ValueType.I8: 3,
}


class Body:
    """Collects nodes; values are named by their number in the program."""

    def __init__(self, like: str) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.like = like
        self._constants: dict[str, str] = {}

    def node(self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:  # noqa: ANN401 - as many types as ONNX has
        """Add a node and return the name of its output."""
        from onnx import helper

        name = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value: float) -> str:
        """A scalar of type T; float64 on the way, so that it is rounded once to T."""
        key = value.hex()  # tells -0.0 from 0.0 and finds NaN again
        if key not in self._constants:
            from onnx import TensorProto, helper

            raw = self.node("Constant", [], value=helper.make_tensor("value", TensorProto.DOUBLE, [], [value]))
            self._constants[key] = self.node("CastLike", [raw, self.like])
        return self._constants[key]

    def typed(self, value: float, like: str) -> str:
        """A scalar of the type of another value."""
        from onnx import TensorProto, helper

        raw = self.node("Constant", [], value=helper.make_tensor("value", TensorProto.DOUBLE, [], [value]))
        return self.node("CastLike", [raw, like])

    def integer(self, value: int, kind: ValueType) -> str:
        """A scalar of an integer type."""
        from onnx import helper

        return self.node("Constant", [], value=helper.make_tensor("value", _CAST_TO[kind], [], [value]))


_BITS = {ValueType.I32: (32, True), ValueType.I64: (64, True), ValueType.U8: (8, False), ValueType.I8: (8, True)}


def _cast(body: Body, x: str, source: ValueType, target: ValueType, out: str) -> None:
    """Convert by our rule. ONNX leaves open what a float beyond an integer type becomes, and engines differ."""
    if target is ValueType.T:
        body.node("CastLike", [x, body.like], out)
        return
    if not source.is_float or target not in _BITS:
        body.node("Cast", [x], out, to=_CAST_TO[target])
        return
    bits, signed = _BITS[target]
    low, beyond = (-float(2 ** (bits - 1)), float(2 ** (bits - 1))) if signed else (0.0, float(2**bits))
    wide = ValueType.I64 if bits == 64 else ValueType.I32  # Where of the others is not everywhere
    least, most, zero = (body.typed(value, x) for value in (low, beyond, 0.0))
    under, over = body.node("LessOrEqual", [x, least]), body.node("GreaterOrEqual", [x, most])
    inside = body.node("And", [body.node("Greater", [x, least]), body.node("Less", [x, most])])  # NaN is not
    whole = body.node("Cast", [body.node("Where", [inside, x, zero])], to=_CAST_TO[wide])
    limits = [body.integer(value, wide) for value in (int(low), int(beyond) - 1)]
    bounded = body.node("Where", [under, limits[0], body.node("Where", [over, limits[1], whole])])
    body.node("Identity" if wide is target else "Cast", [bounded], out, **_to(wide, target))


def _to(wide: ValueType, target: ValueType) -> dict[str, int]:
    return {} if wide is target else {"to": _CAST_TO[target]}


Rule = Callable[[Body, Sequence[str], str], object]


def _direct(op: str, **attributes: object) -> Rule:
    return lambda body, args, out: body.node(op, args, out, **attributes)


def _expm1(body: Body, args: Sequence[str], out: str) -> None:
    # Near 0, exp(x)-1 cancels; 2t/(1-t) with t = tanh(x/2) is the same function and does not.
    (x,) = args
    t = body.node("Tanh", [body.node("Mul", [x, body.constant(0.5)])])
    near = body.node("Div", [body.node("Add", [t, t]), body.node("Sub", [body.constant(1.0), t])])
    far = body.node("Sub", [body.node("Exp", [x]), body.constant(1.0)])
    body.node("Where", [body.node("Less", [body.node("Abs", [x]), body.constant(0.5)]), near, far], out)


def _log1p(body: Body, args: Sequence[str], out: str) -> None:
    # Kahan: with u = fl(1+x), log1p(x) = log(u)*x/(u-1), and x itself where u is 1 or infinite.
    (x,) = args
    u = body.node("Add", [x, body.constant(1.0)])
    difference = body.node("Sub", [u, body.constant(1.0)])
    exact = body.node("Equal", [difference, body.constant(0.0)])
    endless = body.node("Equal", [u, body.constant(float("inf"))])
    keep = body.node("Or", [exact, endless])
    safe = body.node("Where", [keep, body.constant(1.0), difference])
    scaled = body.node("Mul", [body.node("Log", [u]), body.node("Div", [x, safe])])
    body.node("Where", [keep, x, scaled], out)


def _truncate(body: Body, args: Sequence[str], out: str) -> None:
    (x,) = args
    positive = body.node("Less", [x, body.constant(0.0)])
    body.node("Where", [positive, body.node("Ceil", [x]), body.node("Floor", [x])], out)


def _cbrt(body: Body, args: Sequence[str], out: str) -> None:
    (x,) = args
    root = body.node("Pow", [body.node("Abs", [x]), body.constant(1 / 3)])
    body.node("Mul", [body.node("Sign", [x]), root], out)


def _mod(body: Body, args: Sequence[str], out: str) -> None:
    # Floored: the truncated remainder, moved by the divisor where the signs differ.
    a, b = args
    r = body.node("Mod", [a, b], fmod=1)
    zero = body.constant(0.0)
    differ = body.node("Xor", [body.node("Less", [r, zero]), body.node("Less", [b, zero])])
    nonzero = body.node("Not", [body.node("Equal", [r, zero])])
    body.node("Where", [body.node("And", [differ, nonzero]), body.node("Add", [r, b]), r], out)


def _atan2(body: Body, args: Sequence[str], out: str) -> None:
    # atan(y/x), moved by pi into the right half plane of the sign of y; x = 0 gives +-pi/2, both zero gives 0 or pi.
    y, x = args
    zero = body.constant(0.0)
    base = body.node("Atan", [body.node("Div", [y, x])])
    pi = body.constant(3.141592653589793)
    turn = body.node("Where", [body.node("Less", [y, zero]), body.node("Neg", [pi]), pi])
    moved = body.node("Where", [body.node("Less", [x, zero]), body.node("Add", [base, turn]), base])
    both = body.node("And", [body.node("Equal", [x, zero]), body.node("Equal", [y, zero])])
    body.node("Where", [both, y, moved], out)


def _not_equal(body: Body, args: Sequence[str], out: str) -> None:
    body.node("Not", [body.node("Equal", args)], out)


def _scaled_log(base: float) -> Rule:
    import math

    return lambda body, args, out: body.node("Mul", [body.node("Log", args), body.constant(1 / math.log(base))], out)


_RULES: dict[str, Rule] = {
    "add": _direct("Add"),
    "sub": _direct("Sub"),
    "mul": _direct("Mul"),
    "div": _direct("Div"),
    "min": _direct("Min"),
    "max": _direct("Max"),
    "pow": _direct("Pow"),
    "mod": _mod,
    "fmod": _direct("Mod", fmod=1),
    "atan2": _atan2,
    "fma": lambda body, a, out: body.node("Add", [body.node("Mul", a[:2]), a[2]], out),
    "fnma": lambda body, a, out: body.node("Sub", [a[2], body.node("Mul", a[:2])], out),
    "clip": lambda body, a, out: body.node("Min", [body.node("Max", a[:2]), a[2]], out),
    "neg": _direct("Neg"),
    "abs": _direct("Abs"),
    "sign": _direct("Sign"),
    "sqrt": _direct("Sqrt"),
    "rsqrt": lambda body, a, out: body.node("Reciprocal", [body.node("Sqrt", a)], out),
    "cbrt": _cbrt,
    "reciprocal": _direct("Reciprocal"),
    "square": lambda body, a, out: body.node("Mul", [a[0], a[0]], out),
    "relu": _direct("Relu"),
    "exp": _direct("Exp"),
    "exp2": lambda body, a, out: body.node("Pow", [body.constant(2.0), a[0]], out),
    "expm1": _expm1,
    "log": _direct("Log"),
    "log2": _scaled_log(2.0),
    "log10": _scaled_log(10.0),
    "log1p": _log1p,
    **{
        name: _direct(name.capitalize())
        for name in "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf".split()
    },
    "erfc": lambda body, a, out: body.node("Sub", [body.constant(1.0), body.node("Erf", a)], out),
    "sigmoid": _direct("Sigmoid"),
    "softplus": _direct("Softplus"),
    "floor": _direct("Floor"),
    "ceil": _direct("Ceil"),
    "round": _direct("Round"),
    "trunc": _truncate,
    "lt": _direct("Less"),
    "le": _direct("LessOrEqual"),
    "eq": _direct("Equal"),
    "ne": _not_equal,
    "gt": _direct("Greater"),
    "ge": _direct("GreaterOrEqual"),
    "isnan": _direct("IsNaN"),
    "isinf": _direct("IsInf"),
    "logical_and": _direct("And"),
    "logical_or": _direct("Or"),
    "logical_xor": _direct("Xor"),
    "logical_not": _direct("Not"),
    "select": _direct("Where"),
    "round_half": _direct("Identity"),
}


def emit_function(
    program: Program,
    *,
    domain: str,
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Sequence[tuple[str, str, object]] = (),
    opset: int = OPSET,
    doc: str = "",
) -> onnx.FunctionProto:
    """Return the body of ``domain::name``.

    Args:
        program: the lowered formula.
        domain: of the operator.
        name: of the operator.
        inputs: parameter names in order.
        outputs: output names in order.
        attributes: (name, kind "float" | "int" | "bool", default or None when required) in the program's order.
        opset: version of the default domain that the function imports; the importing model must agree.
        doc: documentation text.

    Raises:
        ExportError: the formula uses an instruction without an ONNX form, or sums an output (a gradient).
    """
    from onnx import helper

    where = f"{domain}::{name}"
    if any(output.sum_to is not None for output in program.outputs):
        raise ExportError("an output that is summed to an input's shape has no function body", where=where)
    body = Body(like=inputs[0])
    values: list[str] = list(inputs)
    for attribute, kind, _default in attributes:
        reference = {"float": "value_float", "int": "value_int", "bool": "value_int"}[kind]
        raw = body.node("Constant", [])
        body.nodes[-1].attribute.append(_reference(reference, attribute, kind))
        values.append(body.node("CastLike", [raw, body.like]))
    # A constant enters as T; other types are cast where they are used.
    values += [
        body.constant(c.value)
        if c.type is ValueType.T
        else body.node("Cast", [body.constant(c.value)], to=_CAST_TO[c.type])
        for c in program.constants
    ]
    kinds = [ValueType.T] * (len(values) - len(program.constants)) + [c.type for c in program.constants]
    for instruction in program.instructions:
        out = f"v{len(values)}"
        args = [values[a] for a in instruction.args]
        if instruction.op == "cast":
            _cast(body, args[0], kinds[instruction.args[0]], instruction.type, out)
        elif instruction.op in _RULES:
            _RULES[instruction.op](body, args, out)
        else:
            raise ExportError(f"the instruction {instruction.op!r} has no ONNX form", where=where)
        values.append(out)
        kinds.append(instruction.type)
    for output, public in zip(program.outputs, outputs, strict=True):
        body.node("Identity", [values[output.value]], public)
    required = [n for n, _kind, default in attributes if default is None]
    defaults = [helper.make_attribute(n, _plain(default)) for n, _kind, default in attributes if default is not None]
    return helper.make_function(
        domain,
        name,
        list(inputs),
        list(outputs),
        body.nodes,
        [helper.make_opsetid("", opset)],
        required,
        defaults,
        doc_string=doc,
    )


def _plain(value: object) -> int | float:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    raise ExportError("a formula's attribute must be a number", got=repr(value))


def _reference(name: str, attribute: str, kind: str) -> onnx.AttributeProto:
    import onnx

    made = onnx.AttributeProto()
    made.name = name
    made.ref_attr_name = attribute
    made.type = onnx.AttributeProto.FLOAT if kind == "float" else onnx.AttributeProto.INT
    return made
