"""ONNX models in LiteRT: written with open sizes where that can be, else for the sizes of the inputs at hand."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opforge.engines._inputs import check_names
from opforge.engines._protocol import Array, NodeTime, TensorInfo
from opforge.engines.litert._session import Session
from opforge.engines.litert.writer import OpenShapeError, convert
from opforge.errors import UnsupportedError
from opforge.onnx._read import read_model
from opforge.schema import DType

if TYPE_CHECKING:
    import onnx

__all__ = ["ConvertedModel"]

_Result = TypeVar("_Result")

_KEPT: Final = 4
"""Sessions for known sizes that are kept."""


class ConvertedModel:
    """A loaded ONNX model."""

    def __init__(self, path: Path, threads: int | None, *, profile: bool = False) -> None:
        """Write and compile the model.

        Raises:
            MissingOperatorError: nodes have neither a registered operator nor a body.
            UnsupportedError: LiteRT cannot run the model.
        """
        self._proto = read_model(path)
        self._where = str(path)
        self._options = {"threads": threads, "profile": profile}
        held = {tensor.name for tensor in self._proto.graph.initializer}
        self.inputs = [_info(item) for item in self._proto.graph.input if item.name not in held]
        self.outputs: list[str] = [item.name for item in self._proto.graph.output]
        self._lock = threading.Lock()
        self._fixed: OrderedDict[tuple[tuple[int, ...], ...], Session] = OrderedDict()
        self._open: Session | None = None
        try:
            self._open = Session(convert(self._proto), **self._options)  # type: ignore[arg-type]
        except OpenShapeError:
            if self._is_static():
                raise
        except UnsupportedError:
            if self._is_static():
                raise
            self._session_for([tuple(d if isinstance(d, int) else 2 for d in info.shape) for info in self.inputs])

    def _is_static(self) -> bool:
        return all(isinstance(d, int) for info in self.inputs for d in info.shape)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run once, inputs by name to outputs by name."""
        return self._with(inputs, lambda session: session.run(inputs))

    def profile(self, inputs: Mapping[str, Any], runs: int) -> list[NodeTime]:
        """See `Session.profile`."""
        return self._with(inputs, lambda session: session.profile(inputs, runs))

    def _with(self, inputs: Mapping[str, Any], use: Callable[[Session], _Result]) -> _Result:
        """Use the session with open sizes; where LiteRT cannot, one for the sizes of these inputs."""
        if self._open is not None:
            try:
                return use(self._open)
            except UnsupportedError:
                if self._is_static():
                    raise
        check_names(inputs, [info.name for info in self.inputs], self._where)
        shapes = [tuple(getattr(inputs[info.name], "shape", ())) for info in self.inputs]
        return use(self._session_for(shapes))

    def _session_for(self, shapes: Sequence[tuple[int, ...]]) -> Session:
        key = tuple(shapes)
        with self._lock:
            if key not in self._fixed:
                sizes = {info.name: shape for info, shape in zip(self.inputs, shapes, strict=True)}
                for name, shape in sizes.items():
                    if 0 in shape:
                        raise UnsupportedError(
                            "LiteRT has no tensors without elements", where=f"input {name}", got=f"shape {list(shape)}"
                        )
                self._fixed[key] = Session(convert(self._proto, sizes), **self._options)  # type: ignore[arg-type]
                while len(self._fixed) > _KEPT:
                    self._fixed.popitem(last=False)
            self._fixed.move_to_end(key)
            return self._fixed[key]


def _info(item: onnx.ValueInfoProto) -> TensorInfo:
    kind = item.type.tensor_type
    if not item.type.HasField("tensor_type"):
        raise UnsupportedError("LiteRT takes tensors only", where=f"input {item.name}")
    dims = tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or None for d in kind.shape.dim
    )
    return TensorInfo(item.name, DType.from_onnx(kind.elem_type).numpy, dims)
