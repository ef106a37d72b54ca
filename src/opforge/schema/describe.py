"""What people and tools read about an operator: ``help(op)`` and ``inspect.signature(op)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opforge.schema.attributes import Required
from opforge.schema.declaration import snake_case

if TYPE_CHECKING:
    from opforge.schema.dtypes import DType
    from opforge.schema.operator import Operator
    from opforge.schema.signature import Signature

__all__ = ["documentation", "function_of", "python_signature"]


def python_signature(signature: Signature) -> inspect.Signature:
    """Write a signature as Python's: tensors by position or name, attributes by keyword."""
    kinds = inspect.Parameter
    parameters: list[inspect.Parameter] = []
    for entry in signature.inputs:
        kind = kinds.VAR_POSITIONAL if entry.variadic else kinds.POSITIONAL_OR_KEYWORD
        # Python wants defaults last: an optional before a required input is shown without one.
        default: Any = None if entry.optional and signature.is_trailing_optional(entry) else kinds.empty
        parameters.append(kinds(entry.name, kind, default=default))
    for attribute in signature.attributes:
        default = kinds.empty if isinstance(attribute.default, Required) else attribute.default
        parameters.append(kinds(attribute.name, kinds.KEYWORD_ONLY, default=default, annotation=attribute.kind))
    return inspect.Signature(parameters)


def documentation(operator: Operator) -> str:
    """Write key, signature, types, the author's words and where the operator is declared."""
    lines = [operator.key, "", str(operator.signature)]
    lines += [f"    {name}: {' '.join(d.name for d in dtypes)}" for name, dtypes in operator.types.items()]
    if operator.doc:
        lines += ["", operator.doc]
    if operator.declared_at:
        lines += ["", f"Declared at {operator.declared_at}"]
    return "\n".join(lines)


def function_of(
    key: str, signature: Signature, types: Mapping[str, Sequence[DType]], call: Callable[..., Any]
) -> Callable[..., Any]:
    """Give a function that calls the operator ``domain::Name:version`` the operator's name, signature and words.

    The function takes tensors by position, the variadic input as one sequence.
    """
    name = key.partition("::")[2].rpartition(":")[0]
    call.__name__ = call.__qualname__ = snake_case(name)
    parameters = [
        p if p.kind is p.KEYWORD_ONLY else p.replace(kind=p.POSITIONAL_ONLY)
        for p in python_signature(signature).parameters.values()
    ]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    rows = [f"    {name}: {' '.join(d.name for d in dtypes)}" for name, dtypes in types.items()]
    call.__doc__ = "\n".join([key, "", str(signature), *rows])
    return call
