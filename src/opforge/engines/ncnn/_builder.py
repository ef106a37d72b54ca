"""The network in the making: which blob stands for which value of the graph, and in which form.

ncnn's tensors have up to four axes and no batch. A value of the graph is held as it is, or without its first axis
where that has size 1 (``lead`` says how many are left out); a value without axes is held as one element. Data lie in
the same order in all forms, so that going from one to another is a Reshape.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from opforge.engines.ncnn._net import Array, Layer, Param, Weight
from opforge.passes import _edit
from opforge.passes._dims import Dim
from opforge.passes.infer_shapes import dims_of

__all__ = [
    "KEEP_INTEGERS",
    "MOST_AXES",
    "Blob",
    "Builder",
    "NeedsOne",
    "Refused",
    "attribute",
    "axis_of",
    "reshape_params",
    "shown",
]

MOST_AXES = 4
KEEP_INTEGERS = 6
"""Feature mask (parameter 31) with which a layer rounds nothing to 16 bits, which integers do not survive."""

_NAMES = {1: ("w",), 2: ("h", "w"), 3: ("c", "h", "w"), 4: ("c", "d", "h", "w")}
"""What ncnn calls the axes, outermost first."""
SHAPE_PARAMS = {"w": 0, "h": 1, "d": 11, "c": 2}


class Refused(Exception):
    """A node that ncnn has no layer for, with the reason."""

    @property
    def reason(self) -> str:
        """The reason."""
        return str(self.args[0])


class NeedsOne(Exception):
    """A dimension without a number has to be 1, since it is the batch of a layer that has none."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name)
        self.name = name
        self.why = why


@dataclass(frozen=True)
class Blob:
    """A blob, and the dimensions of the value that it holds.

    ``lead`` is 1 where the first axis is left out; ``inside`` is the place of another axis that is, which happens where
    the batch of five axes has been moved. Only rules that ask for it by ``Builder.raw`` meet the latter.
    """

    name: str
    dims: tuple[Dim, ...]
    lead: int = 0
    integer: bool = False
    inside: int = 0

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """What ncnn sees, outermost first."""
        if self.inside:
            return self.dims[: self.inside] + self.dims[self.inside + 1 :]
        return self.dims[self.lead :] or (Dim.of(1),)


def reshape_params(source: Sequence[Dim], target: Sequence[Dim]) -> dict[int, Param]:
    """Parameters of a Reshape; 0 stands for "as it is", -1 for the rest.

    Raises:
        Refused: more than one size is neither a number nor one of the input's at the same place.
    """
    known = dict(zip(_NAMES[len(source)], source, strict=True))
    params: dict[int, Param] = {}
    for name, dim in zip(_NAMES[len(target)], target, strict=True):
        size = dim.constant
        if size == 0:
            raise Refused("ncnn has no empty tensors")
        params[SHAPE_PARAMS[name]] = size if size is not None else 0 if known.get(name) == dim else -1
    if list(params.values()).count(-1) > 1:
        raise Refused(f"{shown(target)} has more than one open size; give sizes")
    return params


def shown(dims: Sequence[Dim]) -> str:
    """Write dimensions for people."""
    return f"[{', '.join(map(str, dims))}]"


class Builder:
    """Layers in order, and the blobs of values."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.done: set[ir.Node] = set()
        self.integers: set[str] = set()
        self._blobs: dict[ir.Value, Blob] = {}
        self._forms: dict[tuple[str, int, tuple[Dim, ...]], Blob] = {}
        self._constants: dict[tuple[ir.Value, tuple[int, ...]], Blob] = {}
        self._taken: set[str] = set()

    # -- names

    def name(self, wanted: str) -> str:
        """Return a free name of at most 200 characters without blanks that begins with ``wanted``."""
        plain = re.sub(r"[\s=,]+", "_", wanted) or "blob"
        if len(plain) > 200:
            plain = f"{plain[:180]}_{hashlib.sha256(plain.encode()).hexdigest()[:12]}"
        free, k = plain, 0
        while free in self._taken:
            k += 1
            free = f"{plain}_{k}"
        self._taken.add(free)
        return free

    # -- values

    @staticmethod
    def dims(value: ir.Value | None) -> tuple[Dim, ...]:
        """Return the dimensions of a value.

        Raises:
            Refused: not even their number is known.
        """
        if value is None:
            raise Refused("an input is missing")
        found = dims_of(value)
        if found is None:
            raise Refused(f"the number of axes of {value.name} is not known")
        return tuple(found)

    @staticmethod
    def numbers(value: ir.Value | None, what: str) -> list[int]:
        """Return the whole numbers that a constant holds.

        Raises:
            Refused: it is none.
        """
        data = _edit.array(value)
        if data is None:
            raise Refused(f"{what} must be a constant")
        return [int(v) for v in data.reshape(-1)]

    def weight(self, value: ir.Value | None, what: str) -> Array:
        """Return the numbers of a constant as float32.

        Raises:
            Refused: it is none.
        """
        data = _edit.array(value)
        if data is None:
            raise Refused(f"{what} must be a constant")
        return np.asarray(data, np.float32)

    def blob(self, value: ir.Value | None) -> Blob:
        """Return the blob of a value in the form that it has; a constant is held as it is."""
        assert value is not None
        data = _edit.array(value)
        if data is not None:
            lead = 1 if data.ndim > MOST_AXES and data.shape[0] == 1 else 0
            return replace(self.constant(data, data.shape[lead:], value), dims=self.dims(value), lead=lead)
        return self._regular(self._blobs[value])

    def raw(self, value: ir.Value | None) -> Blob:
        """Return the blob of a value that is no constant as it is, whatever axis it leaves out."""
        assert value is not None
        return self.blob(value) if _edit.array(value) is not None else self._blobs[value]

    def _regular(self, blob: Blob) -> Blob:
        """Return the blob with all axes, or without its first one."""
        if not blob.inside:
            return blob
        return self.form(blob, blob.dims, int(len(blob.dims) > MOST_AXES and blob.dims[0].constant == 1))

    def has(self, value: ir.Value) -> bool:
        """Tell whether a blob stands for a value."""
        return value in self._blobs

    def give(self, value: ir.Value, blob: Blob) -> None:
        """Let a blob stand for a value."""
        self._blobs[value] = blob

    def constant(self, data: Array, shape: Sequence[int], value: ir.Value | None = None) -> Blob:
        """Hold numbers in the form ``shape``, as a MemoryData; those of a value once."""
        sizes = tuple(shape) or (1,)
        if value is not None and (value, sizes) in self._constants:
            return self._constants[value, sizes]
        if data.size == 0:
            raise Refused("ncnn has no empty tensors")
        if len(sizes) > MOST_AXES:
            raise Refused(f"a constant of {len(sizes)} axes; ncnn has {MOST_AXES}")
        integer = data.dtype.kind in "iu"
        name = self.name(value.name or "constant" if value is not None else "constant")
        blob = Blob(name, tuple(map(Dim.of, sizes)), integer=integer)
        params: dict[int, Param] = {
            SHAPE_PARAMS[axis]: size for axis, size in zip(_NAMES[len(sizes)], sizes, strict=True)
        }
        weight = Weight(_int32(data) if integer else np.asarray(data, np.float32), tagged=False)
        self.add_many("MemoryData", [], [blob], params, [weight])
        if value is not None:
            self._constants[value, sizes] = blob
        return blob

    # -- forms

    def full(self, value: ir.Value | None) -> Blob:
        """Return the blob of a value with all axes."""
        blob = self.blob(value)
        if blob.lead and len(blob.dims) > MOST_AXES:
            raise Refused(f"{len(blob.dims)} axes; ncnn has {MOST_AXES}")
        return self.form(blob, blob.dims, 0)

    def inner(self, value: ir.Value | None, why: str) -> Blob:
        """Return the blob of a value without its first axis.

        Raises:
            NeedsOne: that axis has no number.
            Refused: it has another size than 1.
        """
        blob = self.blob(value)
        if blob.lead:
            return blob
        self.require_one(blob.dims, why)
        return self.form(blob, blob.dims, 1)

    @staticmethod
    def require_one(dims: Sequence[Dim], why: str) -> None:
        """Hold the first axis against the size 1.

        Raises:
            NeedsOne: it has no number.
            Refused: it has another size.
        """
        if len(dims) < 2:
            raise Refused(f"{why} needs a batch axis and at least one more, not {shown(dims)}")
        size = dims[0].constant
        if size is None and len(dims[0].names) == 1 and dims[0] == Dim.of(next(iter(dims[0].names))):
            raise NeedsOne(str(dims[0]), why)
        if size != 1:
            raise Refused(f"ncnn has no batch: the first axis of {shown(dims)} must be 1 in {why}")

    def form(self, blob: Blob, dims: Sequence[Dim], lead: int) -> Blob:
        """Return the same elements with other dimensions, by a Reshape where ncnn sees a difference."""
        target = replace(blob, dims=tuple(dims), lead=lead, inside=0)
        if target.sizes == blob.sizes:
            return target
        key = (blob.name, lead, target.dims)
        if key not in self._forms:
            if len(target.sizes) > MOST_AXES:
                raise Refused(f"{len(target.sizes)} axes; ncnn has {MOST_AXES}")
            params = reshape_params(blob.sizes, target.sizes)
            made = Blob(self.name(f"{blob.name}__reshape"), tuple(dims), lead, blob.integer)
            self.add_many("Reshape", [blob], [made], params)
            self._forms[key] = made
        return self._forms[key]

    def same_rank(self, values: Sequence[ir.Value | None], dims: Sequence[Dim]) -> tuple[list[Blob], int]:
        """Bring what is broadcast to ``dims`` to one number of axes: ncnn broadcasts the other way round than NumPy.

        Returns:
            The blobs, and how many leading axes they leave out.
        """
        rank = len(dims)
        held = [self.blob(v) for v in values if v is not None and _edit.array(v) is None]
        lead = int(rank > 1 and dims[0].constant == 1 and (rank > MOST_AXES or any(b.lead for b in held)))
        if rank - lead > MOST_AXES:
            raise Refused(f"{rank} axes; ncnn has {MOST_AXES}")
        blobs = []
        for value in values:
            data = _edit.array(value)
            own = self.dims(value)
            if data is not None:
                shape = ((1,) * (rank - data.ndim) + data.shape)[lead:]
                made = self.constant(data, shape, value)
                blobs.append(replace(made, dims=tuple(map(Dim.of, (1,) * lead + shape)), lead=lead))
                continue
            wide = (Dim.of(1),) * (rank - len(own)) + own
            blobs.append(self.form(self.blob(value), wide, lead))
        return blobs, lead

    # -- layers

    def add(
        self,
        kind: str,
        inputs: Sequence[Blob],
        params: Mapping[int, Param] | None = None,
        weights: Sequence[Weight] = (),
        *,
        dims: Sequence[Dim],
        lead: int,
        name: str,
    ) -> Blob:
        """Add a layer with one output."""
        made = Blob(self.name(name), tuple(dims), lead)
        self.add_many(kind, inputs, [made], params, weights)
        return made

    def add_many(
        self,
        kind: str,
        inputs: Sequence[Blob],
        outputs: Sequence[Blob],
        params: Mapping[int, Param] | None = None,
        weights: Sequence[Weight] = (),
    ) -> None:
        """Add a layer; its outputs have their names."""
        given = dict(params or {})
        if kind in ("Reshape", "Split", "Noop") and any(blob.integer for blob in inputs):
            given[31] = KEEP_INTEGERS
        self.integers.update(blob.name for blob in outputs if blob.integer)
        name = outputs[0].name if outputs else self.name(kind)
        self.layers.append(
            Layer(kind, name, [b.name for b in inputs], [b.name for b in outputs], given, tuple(weights))
        )

    def layer(
        self,
        node: ir.Node,
        kind: str,
        inputs: Sequence[Blob],
        params: Mapping[int, Param] | None = None,
        weights: Sequence[Weight] = (),
        *,
        lead: int | None = None,
        output: ir.Value | None = None,
    ) -> Blob:
        """Add the layer of a node, whose output has the form of the first input unless ``lead`` says otherwise."""
        value = node.outputs[0] if output is None else output
        made = self.add(
            kind,
            inputs,
            params,
            weights,
            dims=self.dims(value),
            lead=inputs[0].lead if lead is None else lead,
            name=value.name or kind,
        )
        self.give(value, made)
        return made


def axis_of(blob: Blob, axis: int) -> int:
    """Count an axis of a value as ncnn does, outermost first.

    Raises:
        Refused: it is the axis that is left out.
    """
    found = axis % max(1, len(blob.dims))
    if (blob.lead and found == 0) or (blob.inside and found == blob.inside):
        raise Refused("it works along the batch axis, which ncnn has not")
    return found - int(bool(blob.lead) or 0 < blob.inside < found)


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as many types as ONNX has
    """Return the value of an attribute."""
    return _edit.attribute(node, name, default)


def _int32(data: Array) -> Array:
    narrow = data.astype(np.int32)
    if not np.array_equal(narrow, data):
        raise Refused("a constant does not fit 32 bits, and ncnn has no wider integers")
    return narrow
