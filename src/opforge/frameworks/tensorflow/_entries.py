"""Operators that are registered with TensorFlow, and their Python functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, cast

from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import _pywrap_python_op_gen, op_def_registry

from opforge.build.library import LibraryOperator
from opforge.errors import ArgumentError
from opforge.frameworks import _entries
from opforge.frameworks._devices import device_loader
from opforge.frameworks._entries import Entries, described
from opforge.frameworks._names import tensorflow_name
from opforge.frameworks.tensorflow._adapter import adapter

__all__ = ["ENTRIES", "Entry", "all_entries", "tensorflow_name"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Entry(_entries.Entry):
    """An operator in TensorFlow.

    Attributes:
        name: name of the registered operation, e.g. ``ComExampleCustomGELUV1``.
        function: what TensorFlow made of it: takes a tensor (or a list) per input, and attributes by keyword.
        attributes: TensorFlow's name of each declared attribute.
        input_counts: attribute that counts the tensors of each input; "" = always one.
        output_counts: the same of outputs.
    """

    name: str
    function: Callable[..., Any]
    attributes: tuple[str, ...]
    input_counts: tuple[str, ...]
    output_counts: tuple[str, ...]

    @property
    def plain(self) -> bool:
        """Whether every input and output is one tensor."""
        return not any((*self.input_counts, *self.output_counts))


def _make(operator: LibraryOperator) -> Entry:
    name = tensorflow_name(operator.domain, operator.name, operator.since_version)
    taken = next((entry.key for entry in ENTRIES.all() if entry.name == name), None)
    if taken is not None or op_def_registry.get(name) is not None:  # TensorFlow ends the process on a second one
        raise ArgumentError(
            "an operation of this name is registered with TensorFlow",
            where=name,
            expected=taken or "a free name",
            got=operator.key,
            hint="rename the operator, or restart the process",
        )
    fields = described(operator)
    native = adapter()
    native.define(operator.address, name)
    if native.loader is None:
        native.set_loader(device_loader(ENTRIES, _prepare_device))
    definition = op_def_registry.get(name)
    counters = {argument.number_attr for argument in (*definition.input_arg, *definition.output_arg)}
    return Entry(
        **fields,
        name=name,
        function=_function(definition),
        attributes=tuple(a.name for a in definition.attr if a.type != "type" and a.name not in counters),
        input_counts=tuple(argument.number_attr for argument in definition.input_arg),
        output_counts=tuple(argument.number_attr for argument in definition.output_arg),
    )


def _serve(entry: Entry, operator: LibraryOperator) -> None:
    adapter().define(operator.address, entry.name)


def _prepare_device() -> None:
    from opforge.frameworks.tensorflow._stream import stream_function

    adapter().set_stream(stream_function())


def _complete(entry: Entry) -> None:
    from opforge.frameworks.tensorflow import _gradients

    _gradients.register(entry)


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


ENTRIES: Final = Entries("TensorFlow", "opforge.tensorflow", _make, _complete, _serve)
all_entries = ENTRIES.all
