"""Our layers for a network that the caller loads with ncnn's Python package: subclasses of ``ncnn.Layer``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines.ncnn._custom import LAYOUT_ID, CustomLayer
from opforge.engines.ncnn._files import read_files
from opforge.engines.ncnn._net import Array, Param
from opforge.errors import UnsupportedError
from opforge.schema import Operator

if TYPE_CHECKING:
    import ncnn

__all__ = ["register"]

_FAILED = -100
_NONE, _INT, _FLOAT, _EMPTY, _INTS, _FLOATS = 0, 2, 3, 4, 5, 6
"""What ncnn says of the type of a parameter."""


def register(net: ncnn.Net, path: str | Path) -> list[str]:
    """Register the layers of ours that a converted model uses, before the caller's ``net.load_param(path)``.

    A layer takes and gives plain float32 or int32: it says that it supports neither packing nor 16-bit storage, so
    that ncnn converts before it whatever its options are. What an operator complains of goes to stderr, since ncnn
    passes on nothing but a code.

    Args:
        net: a net of ncnn that has loaded nothing.
        path: the ``.param``, with the ``.bin`` and ``.json`` beside it.

    Returns:
        The kinds of layers that were registered.

    Raises:
        MissingOperatorError: an operator is not registered with opforge.
        CorruptFileError: a file is missing, cut off or damaged.
        UnsupportedError: ncnn's package has no room: older ones take ten registrations in a process.
    """
    operators = read_files(Path(path)).operators
    for kind, operator in operators.items():
        create, destroy = _factory(operator, kind)
        try:
            net.register_custom_layer(kind, create, destroy)
        except RuntimeError as problem:
            raise UnsupportedError(
                "ncnn's Python package takes no more kinds of layers in this process",
                where=kind,
                got=str(problem),
                hint="pip install --upgrade ncnn, or use the engine ncnn of opforge, which registers none",
            ) from None
    return list(operators)


def _factory(operator: Operator, kind: str) -> tuple[Callable[[], ncnn.Layer], Callable[[ncnn.Layer], None]]:
    import ncnn

    alive: list[ncnn.Layer] = []  # ncnn holds the C++ part only

    class Custom(ncnn.Layer):  # type: ignore[misc, unused-ignore]
        """A node of ours."""

        def __init__(self) -> None:
            ncnn.Layer.__init__(self)
            self.support_inplace = False
            self.support_packing = False
            self.support_fp16_storage = False
            self.support_bf16_storage = False
            self.support_vulkan = False
            self.layer: CustomLayer | None = None

        def load_param(self, params: ncnn.ParamDict) -> int:
            """Read the parameters; here ncnn asks whether there is one input and one output."""
            try:
                self.layer = CustomLayer.read(operator, _params(params, operator), kind)
            except Exception as problem:  # ncnn is C++: an exception would end the process
                return _complain(kind, problem)
            self.one_blob_only = len(self.layer.forms) == 1 and sum(form >= 0 for form in self.layer.results) == 1
            return 0

        def load_model(self, weights: ncnn.ModelBin) -> int:
            """There are none: constants are MemoryData."""
            return 0

        def forward(self, bottom: Any, top: Any, option: ncnn.Option) -> int:  # noqa: ANN401 - a Mat or a list
            """Compute."""
            bottoms, tops = (bottom, top) if isinstance(bottom, list) else ([bottom], [top])
            try:
                assert self.layer is not None, "ncnn runs a layer that refused its parameters"
                arrays = self.layer.compute([np.array(mat) for mat in bottoms], kind)
                for mat, array in zip(tops, arrays, strict=True):
                    _fill(mat, array)
            except Exception as problem:
                return _complain(kind, problem)
            return 0

    def create() -> ncnn.Layer:
        alive.append(Custom())
        return alive[-1]

    def destroy(layer: ncnn.Layer) -> None:
        alive[:] = [one for one in alive if one is not layer]

    return create, destroy


def _fill(mat: ncnn.Mat, array: Array) -> None:
    if array.size == 0:
        raise UnsupportedError("ncnn has no empty tensors", got=list(array.shape))
    mat.create(*array.shape[::-1], elemsize=array.itemsize)
    np.asarray(mat.numpy(array.dtype.char))[...] = array


def _params(params: ncnn.ParamDict, operator: Operator) -> dict[int, Param]:
    """Read the parameters that are there."""
    import ncnn

    found: dict[int, Param] = {}
    for number in (*range(len(operator.signature.attributes)), *range(20, LAYOUT_ID + 1)):
        kind = params.type(number)
        if kind == _INT:
            found[number] = params.get(number, 0)
        elif kind == _FLOAT:
            found[number] = params.get(number, 0.0)
        elif kind == _EMPTY:
            found[number] = ()
        elif kind in (_INTS, _FLOATS):
            values: Sequence[Any] = (
                np.array(params.get(number, ncnn.Mat())).view("i4" if kind == _INTS else "f4").tolist()
            )
            found[number] = tuple(values)
    return found


def _complain(kind: str, problem: Exception) -> int:
    print(f"opforge: {kind}: {problem}", file=sys.stderr)
    return _FAILED
