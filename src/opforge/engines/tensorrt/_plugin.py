"""Plugins of TensorRT (``IPluginV3``) whose every answer follows from an operator's declaration."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opforge.build.cuda_driver import current_device
from opforge.engines.tensorrt import _fields
from opforge.engines.tensorrt._call import DeviceCall, bind_call
from opforge.engines.tensorrt._failures import keep
from opforge.engines.tensorrt._fields import Content
from opforge.engines.tensorrt._kernels import combinations, cuda_row, workspace
from opforge.engines.tensorrt._names import plugin_dtype, plugin_id, trt_dtype
from opforge.engines.tensorrt._shapes import SIZE_GUARDS, from_expressions, to_expressions
from opforge.errors import DtypeError, UnsupportedError

if TYPE_CHECKING:
    from opforge.schema import DType, Operator

__all__ = ["plugin_classes"]


@functools.cache
def plugin_classes(trt: Any) -> tuple[Any, Any]:  # noqa: ANN401 - TensorRT's module
    """Return the classes of plugins and of creators; their bases are TensorRT's."""
    bases = (trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime)

    class Plugin(*bases):  # type: ignore[misc]
        """One node."""

        def __init__(self, operator: Operator, content: Content, asked: Mapping[str, int]) -> None:
            trt.IPluginV3.__init__(self)
            trt.IPluginV3OneCore.__init__(self)
            trt.IPluginV3OneBuild.__init__(self)
            trt.IPluginV3OneRuntime.__init__(self)
            name = plugin_id(operator)
            self.plugin_name, self.plugin_version, self.plugin_namespace = name.name, name.version, name.namespace
            self.operator, self.content, self.asked = operator, content, asked
            self.timing_cache_id = f"{operator.schema_hash} {content.text}"
            self.num_outputs = _outputs(operator, content)
            self.workspace_size = 0
            self.calls: dict[tuple[object, ...], DeviceCall] = {}

        def get_capability_interface(self, type: object) -> Plugin:
            return self

        def clone(self) -> Plugin:
            made = Plugin(self.operator, Content(self.content.values, self.content.counts), self.asked)
            made.workspace_size = self.workspace_size
            return made

        # ---- build

        @keep
        def get_output_data_types(self, input_types: Sequence[Any]) -> list[Any]:
            dtypes = [self._dtype(one) for one in input_types]
            binding = bind_call(self.operator, self.content, [None] * len(dtypes), dtypes)
            return [self._theirs(dtype) for dtype in binding.output_dtypes]

        @keep
        def get_output_shapes(
            self,
            inputs: Sequence[Any],
            shape_inputs: Sequence[Any],
            expr_builder: Any,  # noqa: ANN401
        ) -> list[Any]:
            shapes = [from_expressions(trt, expr_builder, one) for one in inputs]
            binding = bind_call(self.operator, self.content, shapes, [None] * len(shapes), SIZE_GUARDS)
            return [to_expressions(trt, expr_builder, _ranked(self.operator, s)) for s in binding.output_shapes]

        @keep
        def supports_format_combination(self, pos: int, in_out: Sequence[Any], num_inputs: int) -> bool:
            # Of what stands behind pos nothing may be read.
            if any(one.desc.format != trt.TensorFormat.LINEAR for one in in_out[: pos + 1]):
                return False
            given = tuple(plugin_dtype(trt, one.desc.type) for one in in_out[: pos + 1])
            row = cuda_row(self.operator)
            return any(c[: pos + 1] == given for c in combinations(self.operator, row, self.content, num_inputs))

        def configure_plugin(self, in_: Sequence[Any], out: Sequence[Any]) -> None:
            self.workspace_size = self._workspace([(one.max, one.desc.type) for one in (*in_, *out)])

        def get_workspace_size(self, input_desc: Sequence[Any], output_desc: Sequence[Any]) -> int:
            self.workspace_size = self._workspace([(o.max, o.desc.type) for o in (*input_desc, *output_desc)])
            return self.workspace_size

        def get_valid_tactics(self) -> list[int]:
            return []

        def _workspace(self, rows: Sequence[tuple[Any, Any]]) -> int:
            return workspace(self.operator, [(list(dims), self._dtype(kind)) for dims, kind in rows], self.asked)

        # ---- run

        def set_tactic(self, tactic: int) -> None:
            pass

        def get_fields_to_serialize(self) -> Any:  # noqa: ANN401
            return _fields.fields(trt, self.operator, self.content)

        def attach_to_context(self, resource_context: object) -> Plugin:
            return self.clone()

        @keep
        def on_shape_change(self, in_: Sequence[Any], out: Sequence[Any]) -> None:
            self._call(in_, out)

        @keep
        def enqueue(
            self,
            input_desc: Sequence[Any],
            output_desc: Sequence[Any],
            inputs: Sequence[int],
            outputs: Sequence[int],
            workspace: int,
            stream: int,
        ) -> None:
            call = self._call(input_desc, output_desc)
            call.enqueue(inputs, outputs, workspace, self.workspace_size, stream)

        def _call(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> DeviceCall:
            key = tuple((one.type, *one.dims) for one in inputs)
            if key not in self.calls:
                self.calls.clear()  # TensorRT says when shapes change, and uses one set at a time
                shapes, dtypes = [list(one.dims) for one in inputs], [self._dtype(one.type) for one in inputs]
                row = cuda_row(self.operator)
                made = DeviceCall(self.operator, row, self.content, shapes, dtypes, current_device())
                self.workspace_size = self._workspace([(one.dims, one.type) for one in (*inputs, *outputs)])
                self.calls[key] = made
            return self.calls[key]

        # ---- dtypes

        def _dtype(self, given: Any) -> DType:  # noqa: ANN401
            dtype = plugin_dtype(trt, given)
            if dtype is None:
                raise DtypeError("wrong dtype", where=self.operator.key, expected=self.operator.types_text, got=given)
            return dtype

        def _theirs(self, dtype: DType | None) -> Any:  # noqa: ANN401
            found = None if dtype is None else trt_dtype(trt, dtype)
            if found is None:
                raise UnsupportedError("TensorRT has no such dtype", where=self.operator.key, got=dtype)
            return found

    class Creator(trt.IPluginCreatorV3One):  # type: ignore[misc]
        """Makes the plugins of one operator."""

        def __init__(self, operator: Operator, asked: Mapping[str, int]) -> None:
            trt.IPluginCreatorV3One.__init__(self)
            name = plugin_id(operator)
            self.name, self.plugin_version, self.plugin_namespace = name.name, name.version, name.namespace
            self.operator, self.asked = operator, asked
            self.field_names = _fields.field_names(trt, operator)

        @keep
        def create_plugin(self, name: str, field_collection: Any, phase: object) -> Plugin:  # noqa: ANN401
            content = _fields.read_fields(trt, self.operator, field_collection)
            return Plugin(self.operator, content, self.asked)

    return Plugin, Creator


def _ranked(operator: Operator, shape: Sequence[Any] | None) -> Sequence[Any]:
    if shape is None or any(size is None for size in shape):
        raise UnsupportedError(
            "a shape that depends on data has no form in a plugin",
            where=operator.key,
            expected="sizes that follow from the inputs' sizes",
            got=", ".join(map(str, operator.signature.outputs)),
        )
    return shape


def _outputs(operator: Operator, content: Content) -> int:
    """How many outputs a node has; without counts all inputs are taken to be there."""
    counts = content.counts or [1] * len(operator.signature.inputs)
    tensors = sum(counts)
    return len(
        bind_call(operator, Content(content.values, tuple(counts)), [None] * tensors, [None] * tensors).output_shapes
    )
