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

__all__ = ["OVERLOAD", "add_variant", "entry_named", "kernel_name"]

OVERLOAD: Final = "out"
_PLAIN: Final = "lowered"
_made: dict[str, Any] = {}  # by name: the overload that a lowered graph calls
_libraries: dict[str, Any] = {}  # PyTorch drops what is registered with the object


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


def add_variant(entry: Entry) -> Any:  # noqa: ANN401 - an OpOverload
    """Register the out variant of an operator with PyTorch; doing it again changes nothing.

    ExecuTorch's compiler splits schemas at commas, those of defaults too. An operator with such a default gets an
    overload without defaults, and the variant belongs to that one.

    Returns:
        The overload that a graph to be lowered has to call: the operator's own, or the one without defaults.

    Raises:
        UnsupportedError: ExecuTorch cannot call such an operator.
    """
    if entry.torch_name in _made:
        return _made[entry.torch_name]
    outputs = entry.signature.outputs
    for output in outputs:
        if output.optional:
            got = f"the output {output.name} is optional"
            raise UnsupportedError("ExecuTorch knows no absent outputs", where=entry.where, got=got)
    if len(outputs) > len(string.ascii_lowercase):
        raise UnsupportedError("too many outputs", where=entry.where, expected="at most 26 output parameters")
    library = _libraries.get(entry.namespace)
    if library is None:
        make: Any = torch.library.Library
        library = _libraries[entry.namespace] = make(entry.namespace, "FRAGMENT")
    schema = entry.overload._schema
    text = str(schema)
    arguments, returned = text[text.index("(") + 1 : text.rindex(") -> ")], text[text.rindex(" -> ") :]
    overload = entry.overload
    if not _readable(text):
        arguments = _without_defaults(schema.arguments)
        library.define(f"{entry.name}.{_PLAIN}({arguments}){returned}")
        library.impl(f"{entry.name}.{_PLAIN}", overload, "CompositeExplicitAutograd")
        overload = getattr(getattr(getattr(torch.ops, entry.namespace), entry.name), _PLAIN)
    names = _out_names(entry)
    library.define(f"{entry.name}.{OVERLOAD}({_out_schema(entry, arguments, names)}")
    library.impl(f"{entry.name}.{OVERLOAD}", _write_to(entry, names), "CompositeExplicitAutograd")
    _made[entry.torch_name] = overload
    return overload


def _readable(schema: str) -> bool:
    from torchgen.model import FunctionSchema

    try:
        FunctionSchema.parse(schema)
    except (RuntimeError, AssertionError, ValueError):  # what ExecuTorch's compiler takes for unreadable
        return False
    return True


def _without_defaults(arguments: Any) -> str:  # noqa: ANN401 - a list of torch._C.Argument
    words = [f"{_word(argument.type)} {argument.name}" for argument in arguments]
    first = next((k for k, argument in enumerate(arguments) if argument.kwarg_only), len(words))
    return ", ".join([*words[:first], *["*"][: len(words) - first], *words[first:]])


def _word(kind: Any) -> str:  # noqa: ANN401 - torch._C.Type
    """A type in PyTorch's schema language."""
    if isinstance(kind, torch.OptionalType):
        return f"{_word(kind.getElementType())}?"
    if isinstance(kind, torch.ListType):
        return f"{_word(kind.getElementType())}[]"
    return str(kind.annotation_str)


def _out_names(entry: Entry) -> tuple[str, ...]:
    taken = {name for item in (entry.signature.inputs, entry.signature.attributes) for name in (i.name for i in item)}
    outputs = entry.signature.outputs
    names = ["out" if len(outputs) == 1 else f"out{k}" for k in range(len(outputs))]
    return tuple(name + "_" * (name in taken) for name in names)


def _out_schema(entry: Entry, arguments: str, names: tuple[str, ...]) -> str:
    """Give arguments and results of the out variant, without the opening bracket."""
    outputs = entry.signature.outputs
    aliases = [f"Tensor({string.ascii_lowercase[k]}!)" for k in range(len(outputs))]
    targets = [f"{a}{'[]' * o.variadic} {n}" for a, o, n in zip(aliases, outputs, names, strict=True)]
    if not entry.signature.attributes:
        targets.insert(0, "*")
    returned = f"({', '.join(aliases)})" if len(aliases) > 1 else aliases[0]
    if any(output.variadic for output in outputs):
        returned = "()"
    return f"{', '.join([arguments, *targets])}) -> {returned}"


def _write_to(entry: Entry, names: tuple[str, ...]) -> Callable[..., Any]:
    """Compute the operator and write the results into the given tensors, for those who call the variant in PyTorch."""
    outputs = entry.signature.outputs

    @functools.wraps(entry.overload)
    def write(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        targets = [keywords.pop(name) for name in names]
        results = entry.overload(*arguments, **keywords)
        for output, target, result in zip(outputs, targets, [results] if len(outputs) == 1 else results, strict=True):
            for into, value in zip(target, result, strict=True) if output.variadic else [(target, result)]:
                into.resize_(value.shape).copy_(value)
        if any(output.variadic for output in outputs):
            return None
        return targets[0] if len(targets) == 1 else tuple(targets)

    return write
