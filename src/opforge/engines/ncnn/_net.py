"""A network as ncnn's files say it: layers, blobs, numbered parameters, weights; written and read here.

``.param`` is text: a magic number, the counts of layers and blobs, then one line per layer: kind, name, number of
inputs and outputs, their names, and ``id=value`` for each parameter, ``-(23300+id)=count,value,...`` for a list.
``.bin`` holds the weights of the layers, one behind the other in the order in which they are loaded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from opforge.errors import CorruptFileError, InternalError

__all__ = ["Array", "Layer", "Param", "Weight", "blob_count", "ints", "param_text", "parse_param", "weight_bytes"]

Array = np.ndarray[Any, Any]
Param = int | float | tuple[int, ...] | tuple[float, ...]

MAGIC: Final = 7767517
_LIST: Final = -23300
_TEXT: Final = 15  # characters of a value that ncnn's reader takes
_DECIMALS: Final = 9  # behind the point: it counts them in 32 bits
_WORD: Final = 255  # characters of a name
_PLAIN_FLOATS: Final = b"\0\0\0\0"  # the tag that says how a weight is stored: as float32


@dataclass(frozen=True)
class Weight:
    """Numbers that a layer loads: with a tag of their storage in front, or as they are."""

    data: Array
    tagged: bool


@dataclass
class Layer:
    """One line of a ``.param``, and its part of the ``.bin``."""

    kind: str
    name: str
    inputs: list[str]
    outputs: list[str]
    params: dict[int, Param] = field(default_factory=dict)
    weights: tuple[Weight, ...] = ()


def blob_count(layers: Iterable[Layer]) -> int:
    """Count the blobs: what layers give."""
    return sum(len(layer.outputs) for layer in layers)


def param_text(layers: Iterable[Layer]) -> str:
    """Write a ``.param``."""
    layers = list(layers)
    lines = [str(MAGIC), f"{len(layers)} {blob_count(layers)}"]
    for layer in layers:
        head = [f"{layer.kind:<24}", f"{layer.name:<24}", str(len(layer.inputs)), str(len(layer.outputs))]
        values = [_assignment(number, value) for number, value in sorted(layer.params.items())]
        lines.append(" ".join([*head, *layer.inputs, *layer.outputs, *values]))
    return "\n".join(lines) + "\n"


def weight_bytes(layers: Iterable[Layer]) -> bytes:
    """Write a ``.bin``."""
    parts = []
    for layer in layers:
        for weight in layer.weights:
            parts += [_PLAIN_FLOATS] if weight.tagged else []
            parts.append(np.ascontiguousarray(weight.data).tobytes())
    return b"".join(parts)


def _assignment(number: int, value: Param) -> str:
    if isinstance(value, tuple):
        return f"{_LIST - number}=" + ",".join([str(len(value)), *map(_scalar, value)])
    return f"{number}={_scalar(value)}"


def _scalar(value: float) -> str:
    """Write a number so that ncnn's own reader gives back the same float32."""
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise InternalError("a parameter does not fit 32 bits", where="ncnn", got=value)
        return str(int(value))
    if not math.isfinite(value):
        raise InternalError("a parameter is no number that ncnn can read", where="ncnn", got=value)
    text = f"{np.float32(value):.9g}"
    if "e" not in text:
        text = text if "." in text else f"{text}.0"
        if len(text) <= _TEXT and len(text.partition(".")[2]) <= _DECIMALS:
            return text
    return f"{np.float32(value):.8e}"


def parse_param(text: str, where: str) -> list[Layer]:
    """Read a ``.param``; whatever ncnn's own reader would trust is checked here, since it does not check.

    Raises:
        CorruptFileError: the text ends early, counts are wrong, a blob is read before a layer gives it, or given
            twice, or a parameter cannot be read.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not lines or lines[0] != [str(MAGIC)]:
        raise CorruptFileError(
            "not a .param of ncnn",
            where=where,
            expected=str(MAGIC),
            got=" ".join(lines[0])[:40] if lines else "nothing",
        )
    counts = _numbers(lines[1]) if len(lines) > 1 else []
    if len(counts) != 2:
        raise CorruptFileError("the .param has no counts", where=where, expected="layers and blobs")
    layers = [_parse_layer(words, f"{where}, line {k + 3}") for k, words in enumerate(lines[2:])]
    if len(layers) != counts[0]:
        raise CorruptFileError("the .param is cut off", where=where, expected=f"{counts[0]} layers", got=len(layers))
    given: set[str] = set()
    for layer in layers:
        for name in layer.inputs:
            if name not in given:
                raise CorruptFileError("a blob that no layer before gives", where=f"{where}, {layer.name}", got=name)
        for name in layer.outputs:
            if name in given:
                raise CorruptFileError("a blob is given twice", where=f"{where}, {layer.name}", got=name)
            given.add(name)
    if len(given) != counts[1]:
        raise CorruptFileError("the number of blobs is wrong", where=where, expected=counts[1], got=len(given))
    return layers


def _numbers(words: list[str]) -> list[int]:
    return [int(w) for w in words if re.fullmatch(r"\d{1,9}", w)] if len(words) == 2 else []


def _parse_layer(words: list[str], where: str) -> Layer:
    counts = _numbers(words[2:4])
    if len(counts) != 2 or len(words) < 4 + sum(counts) or max(map(len, words[: 4 + sum(counts)])) > _WORD:
        raise CorruptFileError("the line of a layer is cut off", where=where, got=" ".join(words)[:80])
    blobs, values = words[4 : 4 + sum(counts)], words[4 + sum(counts) :]
    if any("=" in name for name in blobs):
        raise CorruptFileError("the line of a layer is cut off", where=where, got=" ".join(words)[:80])
    params: dict[int, Param] = {}
    for word in values:
        key, _, value = word.partition("=")
        try:
            number = int(key)
            params[_LIST - number if number <= _LIST else number] = (
                _parse_list(value) if number <= _LIST else _parse_scalar(value)
            )
        except ValueError:
            raise CorruptFileError("a parameter cannot be read", where=where, got=word) from None
    return Layer(words[0], words[1], blobs[: counts[0]], blobs[counts[0] :], params)


def _parse_scalar(text: str) -> int | float:
    return float(np.float32(text)) if any(c in text for c in ".eE") else int(text)


def _parse_list(text: str) -> tuple[int, ...] | tuple[float, ...]:
    count, *rest = text.split(",")
    if len(rest) != int(count):
        raise ValueError(text)
    return tuple(_parse_scalar(item) for item in rest)


def ints(params: Mapping[int, Param], number: int) -> tuple[int, ...]:
    """Return a list of whole numbers."""
    value = params.get(number, ())
    values = value if isinstance(value, tuple) else (value,)
    return tuple(int(v) for v in values)
