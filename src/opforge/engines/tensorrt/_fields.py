"""Attributes as fields of plugins: what a creator takes from an ONNX node, and what an engine keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from opforge.engines.tensorrt._names import INPUTS, OWN_FIELDS, SCHEMA
from opforge.errors import ArgumentError, CorruptFileError, SchemaError
from opforge.schema.lexer import Cursor, format_literal

if TYPE_CHECKING:
    from opforge.schema import Operator
    from opforge.schema.attributes import AttributeValue

__all__ = ["Content", "counts_text", "field_names", "fields", "read_fields", "read_literal"]

_TYPES: Final = {
    "int": ("INT64", np.int64), "ints": ("INT64", np.int64), "float": ("FLOAT32", np.float32),
    "floats": ("FLOAT32", np.float32), "bool": ("INT32", np.int32), "bools": ("INT32", np.int32),
}  # fmt: skip
"""Kind -> the field's type; texts, lists of texts and empty lists are CHAR."""


@dataclass(frozen=True)
class Content:
    """What a plugin is made of.

    Attributes:
        values: the attributes, coerced, in declared order.
        counts: tensors per input parameter; None = as many as come, in order.
    """

    values: Mapping[str, AttributeValue]
    counts: tuple[int, ...] | None = None
    kept: list[Any] = field(default_factory=list, compare=False)

    @property
    def text(self) -> str:
        """All of it in one line."""
        held = ", ".join(f"{name}={format_literal(value)}" for name, value in self.values.items())
        return f"{held}; {counts_text(self.counts)}"


def counts_text(counts: Iterable[int] | None) -> str:
    """Write the tensors per input parameter; "" = as many as come."""
    return "" if counts is None else " ".join(map(str, counts))


def field_names(trt: Any, operator: Operator) -> Any:  # noqa: ANN401 - a collection of TensorRT
    """Return the fields that a creator declares: the attributes, and our own."""
    made = []
    for attribute in operator.signature.attributes:
        kind, dtype = _TYPES.get(attribute.kind, ("CHAR", np.uint8))
        made.append(trt.PluginField(attribute.name, np.array([], dtype), getattr(trt.PluginFieldType, kind)))
    made += [trt.PluginField(name, np.array([], np.uint8), trt.PluginFieldType.CHAR) for name in OWN_FIELDS]
    return trt.PluginFieldCollection(made)


def fields(trt: Any, operator: Operator, content: Content) -> Any:  # noqa: ANN401
    """Return what an engine keeps of a plugin; the memory belongs to ``content``."""
    rows: list[tuple[str, Any, str]] = []
    for attribute in operator.signature.attributes:
        value = content.values[attribute.name]
        kind, dtype = _TYPES.get(attribute.kind, ("CHAR", np.uint8))
        if kind != "CHAR" and value != ():
            rows.append((attribute.name, np.atleast_1d(np.asarray(value, dtype)), kind))
        else:
            text = value if isinstance(value, str) else format_literal(value)
            rows.append((attribute.name, _characters(text), "CHAR"))
    rows.append((INPUTS, _characters(counts_text(content.counts)), "CHAR"))
    rows.append((SCHEMA, _characters(operator.schema_hash), "CHAR"))
    made = [trt.PluginField(name, data, getattr(trt.PluginFieldType, kind)) for name, data, kind in rows]
    collection = trt.PluginFieldCollection(made)
    content.kept[:] = [rows, made, collection]
    return collection


def read_fields(trt: Any, operator: Operator, given: Iterable[Any]) -> Content:  # noqa: ANN401
    """Read the fields that the parser, a caller or an engine gives; absent attributes take their defaults.

    Raises:
        ArgumentError: a field is unknown, missing, or no value of its attribute.
        DtypeError: a value has the wrong type.
        CorruptFileError: the engine was built with another declaration of the operator.
    """
    where = operator.qualified_name
    declared = {attribute.name: attribute for attribute in operator.signature.attributes}
    values: dict[str, object] = {}
    counts: tuple[int, ...] | None = None
    for one in given:
        name = str(one.name)
        text = one.type == trt.PluginFieldType.CHAR
        data = _data(one)
        if name == INPUTS:
            counts = _counts(operator, _text(data)) if data.size else None
        elif name == SCHEMA:
            _same_schema(operator, _text(data) if data.size else "")
        elif name not in declared:
            known = ", ".join((*declared, *OWN_FIELDS))
            raise ArgumentError("unknown field of a plugin", where=where, expected=known, got=name)
        elif text:
            kind = declared[name].kind
            values[name] = _text(data) if kind == "string" else read_literal(_text(data), f"{where}, attribute {name}")
        elif data.size or declared[name].kind.endswith("s"):
            values[name] = _numbers(data, declared[name].kind, f"{where}, attribute {name}")
    return Content(operator.coerce(values), counts)


def read_literal(text: str, where: str) -> object:
    """Read a value as the signature language writes it.

    Raises:
        ArgumentError: the text is none.
    """
    try:
        cursor = Cursor(text, "field", where)
        value = cursor.literal()
        cursor.end()
    except SchemaError as error:
        raise ArgumentError(
            "a field holds no literal", where=where, expected=error.expected, got=text,
            hint="of.tensorrt.prepare writes the nodes of a model so that plugins can read them",
        ) from None  # fmt: skip
    return value


def _characters(text: str) -> Any:  # noqa: ANN401 - an array
    """The text with a zero at its end, which TensorRT's own reader of ONNX writes too: no field is empty."""
    return np.frombuffer(text.encode() + b"\0", np.uint8)


def _data(one: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    data = one.data
    if isinstance(data, bytes | bytearray | memoryview):
        return np.frombuffer(data, np.uint8)
    return np.asarray([] if data is None else data).reshape(-1)


def _text(data: np.ndarray[Any, Any]) -> str:
    return data.tobytes().rstrip(b"\0").decode("utf-8", "replace")


def _numbers(data: np.ndarray[Any, Any], kind: str, where: str) -> object:
    one = float if kind in ("float", "floats") else bool if kind in ("bool", "bools") else int
    numbers: list[Any] = data.tolist()
    if one is not float and any(isinstance(number, float) and number != int(number) for number in numbers):
        raise ArgumentError("a field holds fractions", where=where, expected=kind, got=numbers)
    if kind.endswith("s"):
        return [one(number) for number in numbers]
    if len(numbers) != 1:
        raise ArgumentError("a field holds more than one number", where=where, expected=kind, got=numbers)
    return one(numbers[0])


def _counts(operator: Operator, text: str) -> tuple[int, ...] | None:
    words = text.split()
    if not words:
        return None
    inputs = operator.signature.inputs
    fits = len(words) == len(inputs) and all(word.isdigit() and len(word) < 6 for word in words)
    counts = tuple(map(int, words)) if fits else ()
    for parameter, count in zip(inputs, counts, strict=False):
        fits = fits and (count >= 1 or parameter.optional) and (count <= 1 or parameter.variadic)
    if not fits:
        raise ArgumentError(
            "the inputs of a plugin are described wrongly",
            where=f"{operator.qualified_name}, field {INPUTS}",
            expected=f"tensors for each of {operator.signature.expected_inputs()}",
            got=text,
        )
    return counts


def _same_schema(operator: Operator, text: str) -> None:
    if text and text != operator.schema_hash:
        raise CorruptFileError(
            "the engine was built with another declaration of the operator",
            where=operator.key,
            expected=operator.schema_hash,
            got=text,
            hint="build the engine again, or load the operator that it was built with",
        )
