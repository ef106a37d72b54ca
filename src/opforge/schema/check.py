"""What a signature must hold beyond its grammar: names unique, outputs computable, dimensions solvable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from opforge.errors import SchemaError
from opforge.schema.dims import Binary, Broadcast, Integer, Name, Rest, linear, names

if TYPE_CHECKING:
    from opforge.schema.signature import Parameter, Signature

__all__ = ["check_signature"]


def check_signature(signature: Signature, where: str = "") -> None:
    """Raise a SchemaError for the first thing that makes the signature unusable.

    ``include/opforge/detail/signature.h`` checks the same, in the same order, with the same words.
    """
    seen: set[str] = set()
    declared = [p.name for p in signature.inputs], [a.name for a in signature.attributes]
    for name in (*declared[0], *declared[1], *(p.name for p in signature.outputs)):
        if name in seen:
            _fail(where, "a name is declared twice", "a name for each input, attribute and output", name)
        seen.add(name)
    if not signature.outputs:
        _fail(where, "there is no output", "at least one output", "none")
    for parameters, kind in ((signature.inputs, "input"), (signature.outputs, "output")):
        for parameter in parameters:
            if parameter.variadic and parameter is not parameters[-1]:
                _fail(where, f"a variadic {kind} is not the last", f"the variadic {kind} at the end", parameter.name)
            if parameter.variadic and parameter.optional:
                _fail(where, f"an {kind} is variadic and optional", "one of * and ?", parameter.name)
            if parameter.variadic and not signature.variadic:
                _fail(where, "a variadic output has no variadic input", "as many inputs as outputs", parameter.name)
            _check_dims(parameter, kind, where)
    _check_names(signature, where)
    required = [p for p in signature.inputs if not p.optional]
    for inputs, outputs in (
        (required, [p for p in signature.outputs if not p.optional]),
        (list(signature.inputs), list(signature.outputs)),
    ):
        known = _solve(signature, inputs, where)
        types = {p.type for p in inputs}
        for parameter in outputs:
            for dim in parameter.dims:
                for name in names(dim):
                    if name not in known:
                        expected = "names bound by inputs that are always there, or int attributes"
                        _fail(where, "an output's dimension is not known", expected, f"{name} in {parameter}")
            if parameter.is_generic and parameter.type not in types:
                _fail(where, "an output's type is not known", "a type of an input that is always there", str(parameter))


def _check_dims(parameter: Parameter, kind: str, where: str) -> None:
    runs = 0
    for dim in parameter.dims:
        runs += isinstance(dim, Rest | Broadcast)
        if isinstance(dim, Broadcast) and kind == "input":
            _fail(where, "bcast belongs in outputs", "names, numbers, _ or *S", str(parameter))
        if isinstance(dim, Integer) and dim.value < 0:
            _fail(where, "a dimension is negative", "a number from 0", str(parameter))
    if runs > 1:
        _fail(where, "two dimensions stand for any number", "at most one *S or bcast in an argument", str(parameter))


def _check_names(signature: Signature, where: str) -> None:
    """A name stands for one dimension or for a run of them; an attribute that is used so is an int."""
    single: set[str] = set()
    runs: set[str] = set()
    for parameter in (*signature.inputs, *signature.outputs):
        for dim in parameter.dims:
            (runs if isinstance(dim, Rest | Broadcast) else single).update(names(dim))
    for parameter in (*signature.inputs, *signature.outputs):
        for dim in parameter.dims:
            for name in names(dim):
                if name in single and name in runs:
                    _fail(where, "a name stands for one dimension and for several", "two names", name)
    for attribute in signature.attributes:
        if attribute.name in runs or (attribute.name in single and attribute.kind != "int"):
            _fail(where, "a dimension has the name of an attribute that is not one int", "another name", attribute.name)


def _solve(signature: Signature, inputs: Iterable[Parameter], where: str) -> set[str]:
    """Go through the inputs as a call does and give the names that are then known."""
    known = {a.name for a in signature.attributes if a.kind == "int"}
    pending: list[tuple[Parameter, Binary]] = []
    for parameter in inputs:
        for dim in parameter.dims:
            if isinstance(dim, Name | Rest):
                known.add(dim.name)
            elif isinstance(dim, Binary):
                pending.append((parameter, dim))
    while pending:
        rest: list[tuple[Parameter, Binary]] = []
        for parameter, dim in pending:
            missing = [name for name in names(dim) if name not in known]
            if not missing or linear(dim) is not None:
                known.update(missing)
            else:
                rest.append((parameter, dim))
        if len(rest) == len(pending):
            expected = "a*n+b with integers a and b, or names that are known from elsewhere"
            _fail(where, "a dimension cannot be solved", expected, f"{rest[0][1]} in {rest[0][0]}")
        pending = rest
    return known


def _fail(where: str, what: str, expected: str, got: str) -> NoReturn:
    raise SchemaError(what, where=where or None, expected=expected, got=got)
