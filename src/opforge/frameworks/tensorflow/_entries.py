"""Operators that are registered with TensorFlow: what a kernel library says of them, and their Python functions."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final, cast

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import _pywrap_python_op_gen, op_def_registry

from opforge.build import LoadedLibrary, library_for
from opforge.build.abi import OPERATOR_FORMULA
from opforge.build.library import LibraryOperator
from opforge.errors import ArgumentError
from opforge.frameworks.tensorflow._adapter import adapter
from opforge.schema import DType, GradientProgram, Operator, Signature, parse_types

__all__ = ["Entry", "all_entries", "entry_for", "entry_of", "find_entry", "register_library", "tensorflow_name"]


@dataclass(frozen=True, eq=False)
class Entry:
    """An operator in TensorFlow.

    Attributes:
        key: ``domain::Name:version``.
        where: ``domain::Name``, for messages.
        name: name of the registered operation, e.g. ``ComExampleCustomGELUV1``.
        function: what TensorFlow made of it: takes a tensor (or a list) per input, and attributes by keyword.
        signature: parsed signature.
        types: dtypes of each type variable.
        gradient: gradient program, or None = not differentiable.
        attributes: TensorFlow's name of each declared attribute.
        input_counts: attribute that counts the tensors of each input; "" = always one.
        output_counts: the same of outputs.
        flags: OPFORGE_OPERATOR bits.
        library: the operator in its kernel library.
    """

    key: str
    where: str
    name: str
    function: Callable[..., Any]
    signature: Signature
    types: dict[str, tuple[DType, ...]]
    gradient: GradientProgram | None
    attributes: tuple[str, ...]
    input_counts: tuple[str, ...]
    output_counts: tuple[str, ...]
    flags: int
    library: LibraryOperator = field(repr=False)

    @property
    def is_formula(self) -> bool:
        """Whether it is elementwise with broadcasting."""
        return bool(self.flags & OPERATOR_FORMULA)

    @property
    def plain(self) -> bool:
        """Whether every input and output is one tensor."""
        return not any((*self.input_counts, *self.output_counts))


_lock = threading.RLock()
_entries: Final[dict[str, Entry]] = {}


def tensorflow_name(domain: str, name: str, version: int) -> str:
    """Return the name of the operation: ``com.example::CustomGELU:1`` is ``ComExampleCustomGELUV1``."""
    words = re.split(r"[^0-9A-Za-z]+", domain)
    return "".join(word[:1].upper() + word[1:] for word in words) + f"{name[:1].upper()}{name[1:]}V{version}"


def register_library(library: LoadedLibrary) -> list[Entry]:
    """Register every operator of a kernel library, with gradients. What is registered already stays as it is.

    Raises:
        ArgumentError: another operation has the name; the message names both.
    """
    with _lock:
        return [_register(operator) for operator in library.operators.values()]


def _register(operator: LibraryOperator) -> Entry:
    known = _entries.get(operator.key)
    if known is not None:
        if known.library.schema_hash != operator.schema_hash:
            raise ArgumentError(
                "another operator of this name is registered with TensorFlow",
                where=operator.key,
                expected=f"{known.signature} ({known.library.schema_hash[:12]})",
                got=f"{operator.signature} ({operator.schema_hash[:12]})",
                hint="raise since= for a changed operator, or restart the process (the notebook's kernel)",
            )
        return known
    name = tensorflow_name(operator.domain, operator.name, operator.since_version)
    taken = next((entry.key for entry in _entries.values() if entry.name == name), None)
    if taken is not None or op_def_registry.get(name) is not None:  # TensorFlow ends the process on a second one
        raise ArgumentError(
            "an operation of this name is registered with TensorFlow",
            where=name,
            expected=taken or "a free name",
            got=operator.key,
            hint="rename the operator, or restart the process",
        )
    where = f"{operator.domain}::{operator.name}"
    signature = Signature.parse(operator.signature, where=operator.key)
    adapter().define(operator.address, name)
    definition = op_def_registry.get(name)
    counters = {argument.number_attr for argument in (*definition.input_arg, *definition.output_arg)}
    names = [a.name for a in definition.attr if a.type != "type" and a.name not in counters]
    entry = _entries[operator.key] = Entry(
        key=operator.key,
        where=where,
        name=name,
        function=_function(definition),
        signature=signature,
        types=parse_types(operator.types, signature, where=where),
        gradient=GradientProgram.parse(operator.gradient, where=where) if operator.gradient else None,
        attributes=tuple(names),
        input_counts=tuple(argument.number_attr for argument in definition.input_arg),
        output_counts=tuple(argument.number_attr for argument in definition.output_arg),
        flags=operator.flags,
        library=operator,
    )
    from opforge.frameworks.tensorflow import _gradients

    _gradients.register(entry)
    return entry


def _function(definition: Any) -> Callable[..., Any]:  # noqa: ANN401 - an OpDef
    """Return the function that TensorFlow generates for an operation, the fastest way into it."""
    listed = op_def_pb2.OpList(op=[definition])
    source = _pywrap_python_op_gen.GetPythonWrappers(listed.SerializeToString())
    module = ModuleType(f"opforge.frameworks.tensorflow.generated_{definition.name}")
    exec(compile(source, module.__name__, "exec"), module.__dict__)
    functions = [
        value
        for name, value in vars(module).items()
        if callable(value)
        and getattr(value, "__module__", "") == module.__name__
        and not name.startswith("_")
        and not name.endswith("_eager_fallback")
        and not isinstance(value, type)
    ]
    return cast("Callable[..., Any]", functions[0])


def find_entry(key: str) -> Entry | None:
    """Return the registered operator ``domain::Name:version``, or None."""
    return _entries.get(key)


def entry_for(operator: Operator) -> Entry:
    """Return the entry of an operator, building and registering its library where that has not happened yet."""
    entry = _entries.get(operator.key)
    if entry is None or entry.library.schema_hash != operator.schema_hash:
        register_library(library_for([operator]))  # says so where another operator has the name
        entry = _entries[operator.key]
    return entry


def entry_of(key: str) -> Entry:
    """Return the registered operator ``domain::Name:version``, which gradient programs name."""
    entry = _entries.get(key)
    if entry is None:
        raise ArgumentError(
            "the operator is not registered with TensorFlow", where=key, hint="call opforge.tensorflow.register"
        )
    return entry


def all_entries() -> list[Entry]:
    """Return what is registered, gradient operators included."""
    return list(_entries.values())
