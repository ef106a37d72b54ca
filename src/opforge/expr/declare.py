"""`of.formula`: from a Python function to an operator, with errors for people who write their first one."""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opforge.errors import OpforgeError, SchemaError
from opforge.expr import functions
from opforge.expr.blob import MAX_INPUTS, MAX_OUTPUTS
from opforge.expr.formulas import Formula, FormulaAttribute, FormulaOutput, SourceLocation
from opforge.expr.nodes import Node, attribute, constant, input_, op, postorder
from opforge.expr.operators import has_room_for_gradient, make_operator
from opforge.expr.trace import NOT_ELEMENTWISE, NOT_ELEMENTWISE_HINT, Expr, is_number
from opforge.schema import DType, Operator, floating, nearest, register

__all__ = ["formula", "trace_formula"]

_KINDS = {"float": "float", "int": "int", "bool": "bool", float: "float", int: "int", bool: "bool"}


def formula(
    name: str,
    since: int = 1,
    *,
    dtypes: Iterable[DType | str] = floating,
    autocast: str = "promote",
    differentiable: bool = True,
    nan: str = "propagate",
    derivatives: int = 2,
    host_name: str | None = None,
    outputs: Sequence[str] | None = None,
) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an elementwise operator by a Python function.

    The function's positional parameters are tensors, which broadcast together and share one floating type; its
    keyword-only parameters are attributes, annotated float, int or bool. It returns one expression, or a tuple
    for several outputs. Its docstring is the operator's documentation.

    Args:
        name: ``domain::Name``.
        since: since_version, raised when the meaning changes.
        dtypes: the types that T may be.
        autocast: "promote", "f32", "lower" or "none".
        differentiable: False: backward raises.
        nan: NaN policy, "propagate" or "ignore".
        derivatives: how many orders of gradient operators are made.
        host_name: name in hosts instead of the one in snake case.
        outputs: names of the outputs.

    Raises:
        SchemaError: the function cannot be traced; the message says where and what to write instead.
    """
    if not isinstance(name, str):
        raise SchemaError(
            "of.formula is given the operator's name",
            expected='@of.formula("domain::Name") above the function',
            got=getattr(name, "__name__", repr(name)),
        )
    types = tuple(DType.parse(d) for d in ([dtypes] if isinstance(dtypes, str) else dtypes))
    if not types or not all(d.is_float for d in types):
        raise SchemaError(
            "a formula computes in floating types",
            where=name,
            expected=" ".join(d.name for d in floating),
            got=" ".join(d.name for d in types),
            hint="declare an operator on integers with of.kernel",
        )

    def decorate(function: Callable[..., Any]) -> Operator:
        traced = trace_formula(function, name, outputs)
        _check_size(traced, derivatives if differentiable else 0)
        return register(
            make_operator(
                traced,
                since=since,
                dtypes=types,
                autocast=autocast,
                nan=nan,
                derivatives=derivatives if differentiable else 0,
                host_name=host_name,
                doc=inspect.getdoc(function) or "",
                module=function.__module__,
            )
        )

    return decorate


def _check_size(traced: Formula, derivatives: int) -> None:
    """The limits of programs, met where the author can still see why."""
    inputs, outputs = len(traced.inputs), len(traced.outputs)
    if inputs > MAX_INPUTS or outputs > MAX_OUTPUTS:
        raise SchemaError(
            "the formula is too wide",
            where=traced.name,
            expected=f"at most {MAX_INPUTS} tensors and {MAX_OUTPUTS} outputs",
            got=f"{inputs} and {outputs}",
        )
    if derivatives and not has_room_for_gradient(traced):
        raise SchemaError(
            "the formula has too many tensors for a gradient operator",
            where=traced.name,
            expected=f"at most {MAX_OUTPUTS} tensors, and with the outputs at most {MAX_INPUTS}",
            got=f"{inputs} tensors, {outputs} outputs",
            hint="differentiable=False, or several smaller formulas",
        )


def trace_formula(function: Callable[..., Any], name: str, outputs: Sequence[str] | None = None) -> Formula:
    """The formula of a Python function, called once with traced inputs."""
    if name.count("::") != 1:
        raise SchemaError("an operator's name has a domain", where=name, expected="domain::Name", got=repr(name))
    code = getattr(function, "__code__", None)
    source = SourceLocation(code.co_filename, code.co_firstlineno) if code else None
    where = f"{name} ({source})" if source else name
    inputs, attributes = _parameters(function, where)
    tensors = [Expr(input_(k)) for k in range(len(inputs))]
    scalars: dict[str, Expr] = {}
    for k, a in enumerate(attributes):
        scalar = attribute(k)
        scalars[a.name] = Expr(op("ne", scalar, constant(0.0)) if a.kind == "bool" else scalar)
    try:
        result = function(*tensors, **scalars)
    except OpforgeError as error:
        place = f"{name} ({error.where})" if error.where else name
        raise type(error)(error.what, where=place, expected=error.expected, got=error.got, hint=error.hint) from error
    except Exception as error:
        raise _cannot_trace(error, name) from error
    nodes = _results(result, where)
    names = _output_names(outputs, len(nodes), inputs, attributes, where)
    read = {n for n in postorder(nodes) if n.op in ("input", "attribute")}
    for kind, names_of, leaf in (("tensor", inputs, input_), ("attribute", [a.name for a in attributes], attribute)):
        for k, parameter in enumerate(names_of):
            if leaf(k) not in read:
                raise SchemaError(
                    f"the {kind} {parameter} is not used",
                    where=where,
                    hint="remove the parameter, or use it in the result; a comparison counts as a use",
                )
    results = [FormulaOutput(n, node) for n, node in zip(names, nodes, strict=True)]
    return Formula(name, inputs, attributes, results, source)


def _parameters(function: Callable[..., Any], where: str) -> tuple[list[str], list[FormulaAttribute]]:
    inputs: list[str] = []
    attributes: list[FormulaAttribute] = []
    for p in inspect.signature(function).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise SchemaError(
                f"{'*' * (1 + (p.kind is p.VAR_KEYWORD))}{p.name}: a formula names each of its parameters", where=where
            )
        if p.kind is p.KEYWORD_ONLY:
            attributes.append(_attribute(p, where))
            continue
        if p.default is not p.empty:
            raise SchemaError(
                f"the tensor {p.name} has a default",
                where=where,
                expected="tensors without defaults",
                got=f"{p.name}={p.default!r}",
                hint=f"put * before {p.name} to make it an attribute: def f(x, *, {p.name}: float = {p.default!r})",
            )
        inputs.append(p.name)
    if not inputs:
        raise SchemaError("a formula has at least one tensor", where=where, hint="parameters before * are tensors")
    return inputs, attributes


def _attribute(p: inspect.Parameter, where: str) -> FormulaAttribute:
    kind = _KINDS.get(p.annotation if isinstance(p.annotation, str | type) else "")
    if p.annotation is p.empty and p.default is not p.empty:
        kind = _KINDS.get(type(p.default))
    if kind is None:
        raise SchemaError(
            f"the attribute {p.name} has no type that a formula can compute with",
            where=where,
            expected=f"{p.name}: float, int or bool",
            got="no annotation"
            if p.annotation is p.empty
            else f"{p.name}: {getattr(p.annotation, '__name__', p.annotation)}",
            hint="declare one operator for each meaning of a string, or an operator with of.kernel",
        )
    if p.default is p.empty:
        return FormulaAttribute(p.name, kind)
    fits = isinstance(p.default, bool) if kind == "bool" else is_number(p.default) and not isinstance(p.default, bool)
    if not fits or (kind == "int" and int(p.default) != p.default):
        raise SchemaError(
            f"the default of attribute {p.name} has another type", where=where, expected=kind, got=repr(p.default)
        )
    return FormulaAttribute(p.name, kind, float(np.float32(p.default)) if kind == "float" else float(p.default))


def _results(result: object, where: str) -> list[Node]:
    values = list(result) if isinstance(result, tuple | list) else [result]
    nodes: list[Node] = []
    for value in values:
        if isinstance(value, Expr):
            nodes.append(value.node)
        else:
            raise SchemaError(
                "the function returns something else than an expression of its tensors",
                where=where,
                expected="an expression, or a tuple of them",
                got="nothing: return is missing" if value is None else repr(value),
            )
    if not nodes:
        raise SchemaError("the function returns no output", where=where)
    return nodes


def _output_names(
    given: Sequence[str] | None, count: int, inputs: list[str], attributes: list[FormulaAttribute], where: str
) -> list[str]:
    taken = [*inputs, *(a.name for a in attributes)]
    if given is None:
        stem = "y" if "y" not in taken else "out"
        names = [stem] if count == 1 else [f"{stem}{k}" for k in range(count)]
    else:
        names = list(given)
    if len(names) != count:
        raise SchemaError("wrong number of output names", where=where, expected=count, got=names)
    for k, output in enumerate(names):
        if output in taken or output in names[:k]:
            raise SchemaError(
                f"the output name {output} is taken",
                where=where,
                got=", ".join([*taken, *names]),
                hint="pass outputs=[...]",
            )
    return names


def _cannot_trace(error: Exception, name: str) -> SchemaError:
    """An exception of the author's function, with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parent)
    own = [f for f in frames if not f.filename.startswith(package)]
    # The innermost line of the author's own file: libraries that it calls are not where the mistake is.
    first = own[0].filename if own else ""
    frame = [f for f in own if f.filename == first][-1] if own else None
    line = linecache.getline(frame.filename, frame.lineno or 0).strip() if frame else ""
    return SchemaError(
        f"the formula cannot be traced: {type(error).__name__}: {error}",
        where=f"{name} ({frame.filename}:{frame.lineno})" if frame else name,
        got=line or None,
        hint=_hint(error),
    )


def _hint(error: Exception) -> str | None:
    """What to do about an exception of the author's function."""
    called = re.match(r"(\w+)\(\) (takes|missing|got)", str(error))
    if called and called[1] in functions.OPERATIONS:
        function = getattr(functions, called[1])
        parameters = ", ".join(inspect.signature(function).parameters)
        return f"call of.{called[1]}({parameters})"
    if isinstance(error, AttributeError) and error.obj is not None and getattr(error.obj, "__name__", "") == "opforge":
        close = nearest(error.name or "", functions.OPERATIONS)
        if error.name in NOT_ELEMENTWISE:
            return NOT_ELEMENTWISE_HINT
        if close:
            return f"did you mean of.{close}?"
    if isinstance(error, NameError):
        return None  # Python's words say it all
    return (
        "compute with the functions of opforge only: of.exp, of.tanh, of.where, ...; those of math, torch and "
        "other libraries do not take a formula's tensors"
    )
