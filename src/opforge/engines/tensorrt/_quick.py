"""Plugins by TensorRT's decorators, with kernels that are in the engine as PTX: it needs no library of ours to run."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from opforge.codegen.cuda_entry import ENTRY_THREADS, entry_name, entry_source, is_dense
from opforge.engines.tensorrt._names import DTYPE_NAMES, PluginId, plugin_dtype, quick_id, trt_dtype
from opforge.errors import UnsupportedError

if TYPE_CHECKING:
    from opforge.schema import DType, Operator

__all__ = ["register_quick"]

_TYPES: Final = {"int": int, "float": float, "bool": bool, "string": str}
_WORDS: Final = {"FLOAT": "FP32", "HALF": "FP16"}
"""The decorators' words for element types, where they differ from the enumerator's name."""

_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD

_known: dict[tuple[int, PluginId], Operator] = {}


def register_quick(
    trt: Any,  # noqa: ANN401 - TensorRT's modules
    plugin: Any,  # noqa: ANN401
    operators: Iterable[Operator],
    *,
    compile_ptx: Callable[[str], str],
) -> list[PluginId]:
    """Register formula operators; see `opforge.tensorrt.register_quick`."""
    made = []
    for operator in operators:
        name = quick_id(operator)
        if (id(plugin), name) not in _known:
            _Quick(trt, plugin, operator, compile_ptx).register(f"{name.namespace}::{name.name}")
            _known[id(plugin), name] = operator
        made.append(name)
    return made


class _Quick:
    """The functions of one operator, with the signatures that the decorators read."""

    def __init__(self, trt: Any, plugin: Any, operator: Operator, compile_ptx: Callable[[str], str]) -> None:  # noqa: ANN401
        self.trt, self.plugin, self.operator, self.compile_ptx = trt, plugin, operator, compile_ptx
        self.inputs = [parameter.name for parameter in operator.signature.inputs]
        self.attributes = [attribute.name for attribute in operator.signature.attributes]
        strange = [a.name for a in operator.signature.attributes if a.kind not in _TYPES]
        taken = {"outputs", "stream", "tactic"} & {*self.inputs, *self.attributes}
        if not operator.is_formula or strange or taken:
            raise UnsupportedError(
                "an operator cannot be a plugin by decorators",
                where=operator.key,
                expected="a formula, attributes that are no lists, names other than outputs, stream and tactic",
                got=", ".join((*strange, *sorted(taken))) or "no formula",
                hint="of.tensorrt.register takes it",
            )
        rows = [dict(zip(operator.types, row, strict=True)) for row in itertools.product(*operator.types.values())]
        self.choices = [row for row in rows if all(dtype.name in DTYPE_NAMES for dtype in row.values())]
        if not self.choices:
            raise UnsupportedError("TensorRT has none of the dtypes", where=operator.key, got=operator.types_text)
        entry_source(operator, self.choices[0], operator.coerce(self._some()), 1)  # raises where there can be no kernel

    def _some(self) -> dict[str, object]:
        declared = self.operator.signature.attributes
        return {a.name: _TYPES[a.kind]() for a in declared if a.required}

    def register(self, name: str) -> None:
        """Give the functions to the decorators, which check them."""
        plugin, count = self.plugin, len(self.operator.signature.outputs)
        desc: Any = plugin.TensorDesc
        combinations: Any = list.__class_getitem__(plugin.AutoTuneCombination)
        returned: Any = tuple.__class_getitem__((str, str, plugin.KernelLaunchParams, plugin.SymExprs))
        described: Any = tuple.__class_getitem__((desc,) * count)
        tensors = [(one, desc) for one in self.inputs]
        attributes = [(a.name, _TYPES[a.kind]) for a in self.operator.signature.attributes]
        outputs = ("outputs", described)
        plugin.register(name)(_signed(self.describe, [*tensors, *attributes], described))
        plugin.autotune(name)(_signed(self.autotune, [*tensors, outputs], combinations))
        plugin.aot_impl(name)(_signed(self.kernel, [*tensors, *attributes, outputs, ("tactic", int)], returned))

    def describe(self, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """Shapes and dtypes of the outputs."""
        shape = self._shape(inputs)
        types = self._types(inputs)
        made = []
        for parameter in self.operator.signature.outputs:
            dtype = types.get(parameter.type) or parameter.dtype
            assert dtype is not None
            exprs = self.plugin.ShapeExprs(len(shape)) if not shape else self.plugin.ShapeExprs.from_tuple(tuple(shape))
            made.append(self.plugin.from_shape_expr(exprs, trt_dtype(self.trt, dtype)))
        return tuple(made)

    def autotune(self, *_: Any) -> list[Any]:  # noqa: ANN401
        """The dtypes that there are kernels for, all of one row or none."""
        signature = self.operator.signature
        columns = []
        for parameter in (*signature.inputs, *signature.outputs):
            dtypes = [row.get(parameter.type) or parameter.dtype for row in self.choices]
            names = [DTYPE_NAMES[dtype.name] for dtype in dtypes if dtype is not None]
            columns.append("|".join(_WORDS.get(name, name) for name in names))
        return [self.plugin.AutoTuneCombination(", ".join(columns), "LINEAR")]

    def kernel(self, *arguments: Any) -> tuple[str, str, Any, Any]:  # noqa: ANN401
        """The PTX, how it is launched, and its integers."""
        plugin, count = self.plugin, len(self.inputs)
        inputs = arguments[:count]
        values = dict(zip(self.attributes, arguments[count : count + len(self.attributes)], strict=True))
        shape = self._shape(inputs)
        source = entry_source(self.operator, self._types(inputs), self.operator.coerce(values), len(shape))
        elements = plugin.ShapeExpr(1)
        for size in shape:
            elements = elements * size
        launch = plugin.KernelLaunchParams()
        launch.grid_x = plugin.max(plugin.cdiv(elements, ENTRY_THREADS), 1)
        launch.block_x = ENTRY_THREADS
        integers = [elements]
        if not is_dense(self.operator):
            integers += [*shape, *(step for one in inputs for step in self._steps(one.shape_expr, len(shape)))]
        extra = plugin.SymIntExprs(len(integers))
        for k, one in enumerate(integers):
            extra[k] = plugin.SymInt32(one)
        return entry_name(self.operator), self.compile_ptx(source), launch, extra

    def _types(self, inputs: Sequence[Any]) -> dict[str, DType]:
        found: dict[str, DType] = {}
        for parameter, one in zip(self.operator.signature.inputs, inputs, strict=True):
            dtype = plugin_dtype(self.trt, one.dtype)
            if dtype is not None and parameter.is_generic:
                found.setdefault(parameter.type, dtype)
        return found

    def _shape(self, inputs: Sequence[Any]) -> list[Any]:
        """The shape of the outputs: the inputs', broadcast."""
        shapes = [list(one.shape_expr) for one in (inputs[:1] if is_dense(self.operator) else inputs)]
        made: list[Any] = []
        for back in range(1, max(map(len, shapes)) + 1):
            sizes = [shape[-back] for shape in shapes if len(shape) >= back]
            size = sizes[0]
            for other in sizes[1:]:
                # The other one where the first is 1. The maximum would not do: 1 and 0 broadcast to 0.
                size = size + (size == 1) * (other - 1)
            made.append(size)
        return made[::-1]

    def _steps(self, shape: Sequence[Any], rank: int) -> list[Any]:
        """Elements between neighbours along each axis of the outputs; 0 where an input is broadcast."""
        sizes = list(shape)
        made: list[Any] = [self.plugin.ShapeExpr(0)] * (rank - len(sizes))
        for axis, size in enumerate(sizes):
            step = self.plugin.ShapeExpr(1) - (size == 1)
            for after in sizes[axis + 1 :]:
                step = step * after
            made.append(step)
        return made


def _signed(method: Callable[..., Any], parameters: Sequence[tuple[str, Any]], returned: Any) -> Callable[..., Any]:  # noqa: ANN401
    """Return a function that has the signature which a decorator reads."""
    order = [name for name, _ in parameters]

    def function(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        return method(*arguments, **named)

    rows = [inspect.Parameter(name, _POSITIONAL, annotation=kind) for name, kind in parameters]
    function.__signature__ = inspect.Signature(rows, return_annotation=returned)  # type: ignore[attr-defined]
    function.__name__ = method.__name__ + "_" + "_".join(order)
    return function
