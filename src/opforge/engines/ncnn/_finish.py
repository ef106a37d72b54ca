"""The last touches on a network: activations go into the layers before them, unread layers go, readers are split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from opforge.engines.ncnn._builder import KEEP_INTEGERS, Builder
from opforge.engines.ncnn._net import Layer, Param

__all__ = ["finish"]

_TAKE_ACTIVATIONS: Final = frozenset(
    f"{kind}{axes}"
    for kind in ("Convolution", "ConvolutionDepthWise", "Deconvolution", "DeconvolutionDepthWise")
    for axes in ("", "1D", "3D")
) | {"InnerProduct"}
_KIND, _VALUES = 9, 10


def _relu(params: Mapping[int, Param]) -> dict[int, Param]:
    slope = params.get(0, 0.0)
    return {_KIND: 1} if slope == 0.0 else {_KIND: 2, _VALUES: (_float(slope),)}


def _float(value: Param) -> float:
    assert not isinstance(value, tuple)
    return float(value)


_ACTIVATIONS: Final[Mapping[str, Callable[[Mapping[int, Param]], dict[int, Param]]]] = {
    "ReLU": _relu,
    "Clip": lambda p: {_KIND: 3, _VALUES: (_float(p[0]), _float(p[1]))},
    "Sigmoid": lambda p: {_KIND: 4},
    "Mish": lambda p: {_KIND: 5},
    "HardSwish": lambda p: {_KIND: 6, _VALUES: (_float(p[0]), _float(p[1]))},
}
"""Layer -> the parameters that say the same in the layer before it."""


def finish(b: Builder, outputs: Sequence[str]) -> list[Layer]:
    """Return the layers as they are written; ``outputs`` are blobs that are read from outside."""
    layers = _without_unread(b.layers, outputs)
    _fuse(layers, outputs)
    return _split(b, layers, outputs)


def _without_unread(layers: Sequence[Layer], outputs: Sequence[str]) -> list[Layer]:
    wanted, kept = set(outputs), []
    for layer in reversed(layers):
        if layer.kind == "Input" or wanted.intersection(layer.outputs):
            kept.append(layer)
            wanted.update(layer.inputs)
    return kept[::-1]


def _uses(layers: Sequence[Layer], outputs: Sequence[str]) -> Counter[str]:
    return Counter([*outputs, *(name for layer in layers for name in layer.inputs)])


def _fuse(layers: list[Layer], outputs: Sequence[str]) -> None:
    uses = _uses(layers, outputs)
    makers = {layer.outputs[0]: layer for layer in layers if layer.kind in _TAKE_ACTIVATIONS}
    for layer in list(layers):
        if layer.kind not in _ACTIVATIONS or len(layer.inputs) != 1:
            continue
        maker = makers.get(layer.inputs[0])
        if maker is None or uses[layer.inputs[0]] != 1 or _KIND in maker.params:
            continue
        maker.params |= _ACTIVATIONS[layer.kind](layer.params)
        maker.outputs[0] = layer.outputs[0]
        layers.remove(layer)


def _split(b: Builder, layers: Sequence[Layer], outputs: Sequence[str]) -> list[Layer]:
    """Let each blob have one reader: one more than one is a Split, and being an output counts as being read."""
    uses = _uses(layers, outputs)
    copies: dict[str, list[str]] = {}
    made: list[Layer] = []
    for layer in layers:
        layer.inputs = [copies[name].pop() if name in copies else name for name in layer.inputs]
        made.append(layer)
        for name in layer.outputs:
            if uses[name] > 1:
                keep = name in outputs
                # The output keeps its name, which its reader from outside knows.
                inner = b.name(f"{name}__shared") if keep else name
                parts = [b.name(f"{name}__split") for _ in range(uses[name] - keep)]
                layer.outputs[layer.outputs.index(name)] = inner
                copies[name] = parts[::-1]
                params: dict[int, Param] = {31: KEEP_INTEGERS} if name in b.integers else {}
                made.append(Layer("Split", b.name(f"{name}__split"), [inner], [*([name] * keep), *parts], params))
    return made
