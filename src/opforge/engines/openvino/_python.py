"""Operators of ours as operations written in Python, where the native adapter cannot be built.

The same types, attributes and layers of an IR as the native adapter's; each call takes some 100 us more.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import openvino
from openvino.frontend.onnx import ConversionExtension

from opforge.errors import ArgumentError, CorruptFileError, DtypeError, OpforgeError
from opforge.frameworks import numpy_host
from opforge.schema import ABSENT, DType, Operator
from opforge.schema.attributes import AttributeValue
from opforge.schema.infer import Binding, ShapeLike
from opforge.schema.lexer import Cursor, format_literal

__all__ = ["add_operators"]

_INPUTS = "opforge_inputs"
_UNSET = "\x01"
_ABSENT = "-"

# The types of OpenVINO by our names, and what the CPU's plugin makes of each.
_TYPES = {
    "f32": ("f32", "f32"), "f16": ("f16", "f32"), "bf16": ("bf16", "bf16"), "f64": ("f64", "f32"),
    "i8": ("i8", "i8"), "u8": ("u8", "u8"), "i32": ("i32", "i32"), "i64": ("i64", "i32"), "bool": ("boolean", "u8"),
}  # fmt: skip
_OURS = {theirs: ours for ours, (theirs, _) in _TYPES.items()}


def add_operators(core: openvino.Core, operators: Sequence[Operator]) -> None:
    """Make a Core know operators; of several versions of one, an ONNX model gets the first."""
    converted: set[str] = set()
    for operator in operators:
        kind = _operation(operator)
        core.add_extension(kind)
        if operator.qualified_name not in converted:
            converted.add(operator.qualified_name)
            core.add_extension(
                ConversionExtension(operator.name, operator.domain, functools.partial(_convert, kind, operator))
            )


def _convert(kind: type[Any], operator: Operator, node: Any) -> list[Any]:  # noqa: ANN401 - NodeContext
    """Make a node from one of an ONNX model."""
    inputs, words = [], []
    for k in range(node.get_input_size()):
        value = node.get_input(k)
        absent = value.get_node().get_type_info().name == "NullNode"
        words.append(_ABSENT if absent else "?")
        if not absent:
            inputs.append(value)
    given = {}
    for attribute in operator.signature.attributes:
        if node.has_attribute(attribute.name):
            given[attribute.name] = _from_onnx(attribute.kind, node.get_attribute(attribute.name))
    made = kind(inputs, operator.coerce(given), words)
    return [_in_model(output, dtype) for output, dtype in zip(made.outputs(), made.made, strict=True)]


def _in_model(output: Any, dtype: DType | None) -> Any:  # noqa: ANN401 - openvino.Output
    """An output whose dtype the signature fixes goes on in that; see typing.h of the native adapter."""
    if dtype is None or _dtype(output.get_element_type()) == dtype:
        return output
    return openvino.opset13.convert(output, _TYPES[dtype.name][0]).output(0)


def _from_onnx(kind: str, value: object) -> object:
    if kind == "bool":
        return bool(value)
    if kind == "bools":
        return [bool(item) for item in value]  # type: ignore[attr-defined]
    if isinstance(value, (list, tuple, np.ndarray)):
        return [item.item() if isinstance(item, np.generic) else item for item in value]
    return value


def _text(kind: str, value: AttributeValue) -> str:
    return str(value) if kind == "string" else format_literal(value)


def _value(kind: str, text: str, where: str) -> object:
    if kind == "string":
        return text
    cursor = Cursor(text, "an attribute", where)
    value = cursor.literal()
    cursor.end()
    return value


def _dtype(type_: openvino.Type) -> DType | None:
    name = type_.get_type_name() if hasattr(type_, "get_type_name") else str(type_)
    return DType.parse(_OURS[name]) if name in _OURS else None


def _type(dtype: DType) -> openvino.Type:
    return getattr(openvino.Type, _TYPES[dtype.name][0])


class _Content:
    """Attributes and inputs of one node, as texts: what an IR holds."""

    def __init__(self, operator: Operator, values: Mapping[str, AttributeValue] | None, words: list[str]) -> None:
        self.operator = operator
        self.texts = {
            a.name: _UNSET if values is None else _text(a.kind, values[a.name]) for a in operator.signature.attributes
        }
        self.texts[_INPUTS] = " ".join(words) if words else _UNSET

    @property
    def words(self) -> list[str]:
        text = self.texts[_INPUTS]
        return [] if text in (_UNSET, "") else text.split(" ")

    def attributes(self) -> dict[str, object]:
        where = self.operator.qualified_name
        return {
            a.name: _value(a.kind, self.texts[a.name], f"{where}, attribute {a.name}")
            for a in self.operator.signature.attributes
            if self.texts[a.name] != _UNSET
        }

    def remember(self, dtypes: Sequence[DType]) -> None:
        """Keep the dtypes that the node was made with."""
        words, given = self.words or ["?"] * len(dtypes), list(dtypes)
        for k, word in enumerate(words):
            if word != _ABSENT:
                dtype = given.pop(0)
                words[k] = dtype.name if word == "?" else word
        self.texts[_INPUTS] = " ".join(words)

    def spread(self, items: Sequence[Any], count: int) -> list[Any]:
        """Put one item per input that is there at its place, None at those of absent ones."""
        words = self.words or ["?"] * count
        if sum(word != _ABSENT for word in words) != len(items):
            raise ArgumentError(
                "wrong number of inputs",
                where=self.operator.qualified_name,
                expected=str(self.operator.signature),
                got=len(items),
            )
        rest = list(items)
        return [None if word == _ABSENT else rest.pop(0) for word in words]

    def bind(self, shapes: Sequence[ShapeLike], given: Sequence[DType | None]) -> tuple[Binding, list[DType | None]]:
        """Bind, with the dtypes that arrive or else with those that the node was made with."""
        places = self.spread(list(zip(shapes, given, strict=True)), len(given))
        flat = [ABSENT if place is None else place[0] for place in places]
        attributes = self.attributes()
        taken = [None if place is None else place[1] for place in places]
        try:
            return self.operator.bind(flat, taken, attributes), taken
        except DtypeError:
            originals = [self._original(k, dtype) for k, dtype in enumerate(taken)]
            if originals == taken:
                raise
            return self.operator.bind(flat, originals, attributes), originals

    def _original(self, place: int, given: DType | None) -> DType | None:
        word = self.words[place] if place < len(self.words) else "?"
        if given is None or word in ("?", _ABSENT):
            return given
        if word not in _TYPES:
            where = f"{self.operator.qualified_name}, attribute {_INPUTS}"
            raise CorruptFileError("unknown word", where=where, expected="a dtype, ? or -", got=word)
        return DType.parse(word) if _TYPES[word][1] == given.name else given

    def fixed(self, binding: Binding, output: int) -> bool:
        """Whether the signature fixes the dtype of an output tensor."""
        flat = [
            p
            for p, count in zip(self.operator.signature.outputs, binding.output_counts, strict=True)
            for _ in range(count)
        ]
        return flat[output].type not in self.operator.types

    def changed(self, taken: Sequence[DType | None]) -> bool:
        """Whether the plugin has changed the dtype of an input."""
        return any(
            dtype is not None and self._original(k, dtype) != dtype
            for k, dtype in enumerate(taken)
            if k < len(self.words)
        )


@functools.cache
def _operation(operator: Operator) -> type[Any]:
    """Make the class of an operator's nodes."""
    info = openvino.DiscreteTypeInfo(operator.qualified_name, f"opforge:{operator.since_version}")

    class Operation(openvino.Op):  # type: ignore[misc]
        class_type_info = info

        def __init__(
            self,
            inputs: Sequence[Any] | None = None,
            values: Mapping[str, AttributeValue] | None = None,
            words: Sequence[str] = (),
            texts: Mapping[str, str] | None = None,
        ) -> None:
            super().__init__(self)
            self._content = _Content(operator, values, list(words))
            if texts is not None:
                self._content.texts.update(texts)
            if inputs is not None:
                self.set_arguments(list(inputs))
                self.constructor_validate_and_infer_types()

        @staticmethod
        def get_type_info() -> openvino.DiscreteTypeInfo:
            return info

        def visit_attributes(self, visitor: Any) -> bool:  # noqa: ANN401 - openvino gives it no type
            visitor.on_attributes(self._content.texts)
            return True

        def validate_and_infer_types(self) -> None:
            _told(self._infer)

        def _infer(self) -> None:
            content, count = self._content, self.get_input_size()
            types = [_dtype(self.get_input_element_type(k)) for k in range(count)]
            shapes = [_shape(self.get_input_partial_shape(k)) for k in range(count)]
            binding, _ = content.bind(shapes, types)
            if None not in types:
                content.remember([t for t in types if t is not None])
            changed = content.changed(content.spread(types, count))
            self.set_output_size(len(binding.output_shapes))
            self.made = binding.output_dtypes
            for k, shape in enumerate(binding.output_shapes):
                dtype = self.made[k]
                follows = changed or content.fixed(binding, k)
                self.set_output_type(
                    k, openvino.Type.dynamic if dtype is None else _shown(dtype, follows), _partial(shape)
                )

        def clone_with_new_inputs(self, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - a node
            return Operation(inputs, texts=self._content.texts)

        def has_evaluate(self) -> bool:
            return True

        def evaluate(self, outputs: list[openvino.Tensor], inputs: list[openvino.Tensor]) -> bool:
            _told(lambda: _run(self._content, outputs, inputs))
            return True

    Operation.__name__ = operator.name
    return Operation


def _told(body: Any) -> None:  # noqa: ANN401 - a function
    """Let no exception of ours out without its status, which the reader of OpenVINO's words finds again."""
    from opforge.build.native import STATUS_ERRORS

    try:
        body()
    except OpforgeError as error:
        status = next((s for s, kind in STATUS_ERRORS.items() if type(error) is kind), 7)
        raise RuntimeError(f"opforge({status}): {error}\n(end of opforge's words)") from error


def _shown(dtype: DType, changed: bool) -> openvino.Type:
    return getattr(openvino.Type, _TYPES[dtype.name][1]) if changed else _type(dtype)


def _shape(shape: openvino.PartialShape) -> ShapeLike:
    if shape.rank.is_dynamic:
        return None
    return [None if dim.is_dynamic else dim.get_length() for dim in shape]


def _partial(shape: Sequence[Any] | None) -> openvino.PartialShape:
    if shape is None:
        return openvino.PartialShape.dynamic()
    return openvino.PartialShape([openvino.Dimension(-1) if dim is None else openvino.Dimension(dim) for dim in shape])


def _array(tensor: openvino.Tensor, dtype: DType) -> Any:  # noqa: ANN401 - an array
    given = _dtype(tensor.get_element_type())
    if given is not None and given.name == "bf16":
        flat = np.ndarray(tensor.shape, given.numpy, tensor.data.view(np.uint16))
        return flat.astype(dtype.numpy, copy=False)
    return tensor.data.astype(dtype.numpy, copy=False)


def _run(content: _Content, outputs: list[openvino.Tensor], inputs: list[openvino.Tensor]) -> None:
    given = [_dtype(tensor.get_element_type()) for tensor in inputs]
    _, taken = content.bind([list(tensor.shape) for tensor in inputs], given)
    dtypes = [dtype for dtype in taken if dtype is not None]
    arrays = content.spread([_array(t, d) for t, d in zip(inputs, dtypes, strict=True)], len(inputs))
    parameters = content.operator.signature.inputs
    arguments: list[Any] = arrays[: len(parameters)] + [None] * (len(parameters) - len(arrays))
    if parameters and parameters[-1].variadic:
        arguments[-1] = tuple(arrays[len(parameters) - 1 :])
    made = numpy_host.call(content.operator, arguments, content.attributes())
    for tensor, array in zip(outputs, made if isinstance(made, tuple) else (made,), strict=True):
        if list(tensor.shape) != list(array.shape):
            tensor.shape = list(array.shape)
        if not array.size:
            continue
        if array.dtype.name == "bfloat16":
            tensor.data.view(np.uint16)[...] = array.view(np.uint16)
        else:
            tensor.data[...] = array
