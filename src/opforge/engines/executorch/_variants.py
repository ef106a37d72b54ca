"""Out variants: for each operator of ours a second overload in PyTorch that writes into tensors it is given.

ExecuTorch calls operators in no other form; its compiler finds the variant by the name and the schema.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable
from typing import Any, Final

import torch

from opforge.errors import UnsupportedError
from opforge.frameworks.torch import Entry, all_entries, register
from opforge.frameworks.torch._calls import declared
from opforge.schema import discover

__all__ = ["OVERLOAD", "add_variant", "entry_named", "kernel_name", "out_schema"]

OVERLOAD: Final = "out"
_made: dict[str, tuple[str, ...]] = {}  # operators that have their variant -> names of its out arguments
_libraries: dict[str, torch.library.Library] = {}  # PyTorch drops what is registered with the object


def kernel_name(entry: Entry) -> str:
    """Return what a .pte calls the operator: ``com_example::custom_gelu.out``."""
    return f"{entry.torch_name}.{OVERLOAD}"


def entry_named(name: str) -> Entry | None:
    """Return the operator that PyTorch has as ``namespace::name``, registering it where it is only declared."""
    found = _by_name(name)
    if found is None:
        discover()
        operator = declared(*name.split("::", 1))
        if operator is None:
            return None
        register(operator)
        found = _by_name(name)
    return found


def _by_name(name: str) -> Entry | None:
    return next((entry for entry in all_entries() if entry.torch_name == name), None)


def add_variant(entry: Entry) -> tuple[str, ...]:
    """Register the out variant of an operator with PyTorch; doing it again changes nothing.

    Returns:
        The names of its out arguments.

    Raises:
        UnsupportedError: ExecuTorch cannot call such an operator.
    """
    if entry.torch_name not in _made:
        for output in entry.signature.outputs:
            if output.optional:
                raise UnsupportedError(
                    "ExecuTorch knows no absent outputs",
                    where=entry.where,
                    got=f"the output {output.name} is optional",
                )
        if len(entry.signature.outputs) > len(string.ascii_lowercase):
            raise UnsupportedError("too many outputs", where=entry.where, expected="at most 26 output parameters")
        schema, names = out_schema(entry)
        library = _libraries.get(entry.namespace)
        if library is None:
            library = _libraries[entry.namespace] = torch.library.Library(entry.namespace, "FRAGMENT")
        library.define(schema)
        library.impl(f"{entry.name}.{OVERLOAD}", _write_to(entry, names), "CompositeExplicitAutograd")
        _made[entry.torch_name] = names
    return _made[entry.torch_name]


def out_schema(entry: Entry) -> tuple[str, tuple[str, ...]]:
    """Give the schema of the out variant, and the names of its out arguments."""
    text = str(entry.overload._schema)
    given = text[text.index("(") + 1 : text.rindex(") -> ")]
    taken = {item.name for item in (*entry.signature.inputs, *entry.signature.attributes)}
    outputs = entry.signature.outputs
    names, arguments, results = [], [], []
    for k, output in enumerate(outputs):
        name = "out" if len(outputs) == 1 else f"out{k}"
        while name in taken:
            name += "_"
        alias = f"Tensor({string.ascii_lowercase[k]}!)"
        names.append(name)
        arguments.append(f"{alias}{'[]' if output.variadic else ''} {name}")
        results.append(alias)
    if not entry.signature.attributes:
        arguments.insert(0, "*")
    returned = f"({', '.join(results)})" if len(results) > 1 else results[0]
    if any(output.variadic for output in outputs):
        returned = "()"
    joined = ", ".join(filter(None, (given, *arguments)))
    return f"{entry.name}.{OVERLOAD}({joined}) -> {returned}", tuple(names)


def _write_to(entry: Entry, names: tuple[str, ...]) -> Callable[..., Any]:
    """Compute the operator and write the results into the given tensors, for those who call the variant in PyTorch."""
    outputs = entry.signature.outputs

    @functools.wraps(entry.overload)
    def write(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        targets = [keywords.pop(name) for name in names]
        results = entry.overload(*arguments, **keywords)
        for output, target, result in zip(outputs, targets, (results,) if len(outputs) == 1 else results, strict=True):
            for into, value in zip(target, result, strict=True) if output.variadic else [(target, result)]:
                into.resize_(value.shape).copy_(value)
        if any(output.variadic for output in outputs):
            return None
        return targets[0] if len(targets) == 1 else tuple(targets)

    return write
