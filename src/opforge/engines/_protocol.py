"""What an inference engine offers to compare, run and benchmark.

Protocols rather than base classes, so that an engine in somebody else's package needs no import of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from opforge.schema import Operator

__all__ = [
    "Array",
    "Availability",
    "Engine",
    "LoadedModel",
    "NodeTime",
    "OperatorWriter",
    "TensorInfo",
    "Traits",
    "Writer",
    "Written",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Availability:
    """Whether an engine can be used here, its version, and otherwise why not and how to get it."""

    ok: bool
    version: str = ""
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True)
class TensorInfo:
    """Name, NumPy dtype and dimensions (numbers, names or None) of one input or output.

    ``kind`` is "tensor", or "sequence", "optional", "optional_sequence" of such tensors: lists of arrays, or None.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...]
    kind: str = "tensor"


@dataclass(frozen=True)
class Traits:
    """What an engine can do, for tables and for choosing.

    Attributes:
        devices: where it computes here: "cpu", "cuda", ... as found on this machine.
        dtypes: NumPy names of the element types that inputs and outputs may have.
        dynamic_shapes: whether one loaded model takes inputs of several shapes.
        operators: how nodes of ours run: "kernels" (our libraries), "bodies" (function bodies), "reference".
        suffixes: files that ``load`` takes.
        narrowed: names (``f64``) of the dtypes that it takes and computes in f32.
    """

    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    dynamic_shapes: bool
    operators: tuple[str, ...]
    suffixes: tuple[str, ...] = (".onnx",)
    narrowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeTime:
    """Time of one executed node, summed over the profiled runs.

    Attributes:
        name: of the node, or of its first output, as the engine knows it.
        operator: ``domain::Name``, or the plain name of a standard operator.
        device: what ran it: a device, or the engine's part (an execution provider).
        runs: how often it ran.
        nanoseconds: sum over the runs.
        samples: nanoseconds of each time it ran, where the engine says them.
        origin: names of the model's nodes (or of their first outputs) that it stands for, where the engine knows them:
            what was fused into it.
        bytes: what one run of it reads and writes, weights too, where the engine says it.
        moves: "copy" where it only moves data, "layout" where it only changes how they lie, else "".
    """

    name: str
    operator: str
    device: str
    runs: int
    nanoseconds: int
    samples: tuple[int, ...] = ()
    origin: tuple[str, ...] = ()
    bytes: int | None = None
    moves: str = ""


@dataclass(frozen=True)
class Written:
    """Files of an engine's own kind that were made of a model, the first of which ``load`` takes, and remarks."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()


class LoadedModel(Protocol):
    """A model ready to run."""

    @property
    def inputs(self) -> Sequence[TensorInfo]:
        """The inputs in order."""
        ...

    @property
    def outputs(self) -> Sequence[str]:
        """The output names in order."""
        ...

    def run(self, inputs: Mapping[str, Any], /) -> dict[str, Any]:
        """Run once, inputs by name to outputs by name: arrays, lists of them for sequences, None for no optional."""
        ...


class Engine(Protocol):
    """An inference engine."""

    name: str

    def availability(self) -> Availability:
        """Say whether the engine can be used here."""
        ...

    def traits(self) -> Traits:
        """Say what the engine can do; asked only where it is available."""
        ...

    def prepare(self) -> None:
        """Import what loading needs, so that the time of loading a model is that of the model."""
        ...

    def load(self, model: Path, *, threads: int | None = None) -> LoadedModel:
        """Load an ONNX model (or the engine's own file). ``threads=None`` leaves the choice to the engine."""
        ...

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> Sequence[NodeTime]:
        """Load, run ``runs`` times after one that is not counted, and give each node's time in order of execution.

        Raises:
            UnsupportedError: the engine does not say what its nodes take.
        """
        ...


@runtime_checkable
class Writer(Protocol):
    """What an engine also has that keeps models in files of its own: ``opforge compile --target NAME`` asks it.

    Attributes:
        writes: what the name of the file ends in that ``write`` makes when it is given none, e.g. ``.ncnn.param``.
    """

    name: str
    writes: str

    def write(self, model: Path, output: Path, *, sizes: Mapping[str, int]) -> Written:
        """Convert an ONNX model. ``sizes`` gives numbers to named dimensions.

        Raises:
            UnsupportedError: the engine cannot run nodes of the model; all are listed, and nothing is written.
        """
        ...


@runtime_checkable
class OperatorWriter(Protocol):
    """What an engine also has that takes no ONNX models, for the tables of what runs where."""

    name: str

    def write_operator(
        self, operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any], output: Path
    ) -> dict[str, Array]:
        """Write a file that ``load`` takes and that computes one operator; give its inputs by name.

        Raises:
            UnsupportedError: the engine cannot express the operator.
        """
        ...
