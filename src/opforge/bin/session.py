"""Session: a loaded .bin, ready to run from any number of threads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata as packages
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.encode import PlanEntry
from opforge.bin.native import native
from opforge.bin.program import Dim
from opforge.errors import ArgumentError, DtypeError, MissingOperatorError

__all__ = ["NodeTime", "Session", "ValueInfo"]

Array = NDArray[Any]


@dataclass(frozen=True)
class ValueInfo:
    """An input or output of a session.

    Attributes:
        name: as in the model.
        dtype: NumPy dtype (``ml_dtypes`` for bf16 and the types of 8 bits and less; arrays hold one element per byte).
        shape: numbers, symbols or expressions over them, None where unknown; None when the rank is unknown.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Dim, ...] | None


@dataclass(frozen=True)
class NodeTime:
    """Time that a node took, summed over the runs since profiling began."""

    domain: str
    op: str
    output: str
    runs: int
    nanoseconds: int


class Session:
    """A loaded bin.

    A session may be shared between threads; results do not depend on the number of threads. It is cheap to keep
    and its weights stay in the page cache when the file is mapped.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        verify: str = "lazy",
        libraries: Sequence[str | os.PathLike[str]] = (),
        allow_native: bool = True,
        mmap: bool = True,
    ) -> None:
        """Open a .bin.

        Args:
            path: the file.
            threads: threads of one run; None = all that the process may use, 1 = the calling thread alone.
            verify: "lazy" checks the weights' checksums on first touch, "full" while opening.
            libraries: kernel libraries, or folders that hold some; searched before ``OPFORGE_LIBRARY_PATH`` and
                installed operator packages.
            allow_native: False refuses models that need a kernel library.
            mmap: False copies the file, so that it may be shortened meanwhile.

        Raises:
            CorruptFileError: the file is damaged; the message names the section.
            MissingOperatorError: a kernel library is not found; the message lists where it was looked for.
            UnsupportedError: the file needs a newer reader, a kernel or CPU features that are not here.
            ArgumentError: there is no such file, or an option is wrong.
        """
        source = Path(path)
        if not source.is_file():
            raise ArgumentError("there is no such file", where=str(source), expected="a .bin made by opforge compile")
        if verify not in ("lazy", "full"):
            raise ArgumentError("unknown way to verify", where="verify", expected="'lazy' or 'full'", got=repr(verify))
        if threads is not None and threads < 1:
            raise ArgumentError("threads must be at least 1", where="threads", expected=">= 1 or None", got=threads)
        options = (threads or 0, verify == "full", [os.fspath(item) for item in libraries])
        try:
            self._native = native().Session(str(source), *options, [], allow_native, mmap, NUMPY_DTYPES)
        except MissingOperatorError:
            # Only now: listing the installed packages takes longer than opening most models.
            folders = _installed_folders() if allow_native else []
            if not folders:
                raise
            self._native = native().Session(str(source), *options, folders, allow_native, mmap, NUMPY_DTYPES)
        self._path = source
        self._run = self._native.run
        self._inputs = [_info(*row) for row in self._native.values(True)]
        self._outputs = [_info(*row) for row in self._native.values(False)]

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def inputs(self) -> list[ValueInfo]:
        """Inputs in order."""
        return list(self._inputs)

    @property
    def outputs(self) -> list[ValueInfo]:
        """Outputs in order."""
        return list(self._outputs)

    @property
    def metadata(self) -> Mapping[str, str]:
        """Keys and values that the compiler stored."""
        return MappingProxyType(self._native.metadata())

    @property
    def statistics(self) -> dict[str, int]:
        """Counts and bytes: nodes, executed_nodes, plans, arena_bytes, live_bytes (lower bound), dynamic."""
        return dict(self._native.statistics())

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the model once.

        Args:
            inputs: an array for each input. Dtypes must be those of the model; shapes must fit its dimensions.

        Returns:
            A new array for each output.

        Raises:
            ArgumentError: a name, rank or dimension is wrong.
            DtypeError: a dtype is wrong.
        """
        result: dict[str, Array] | None = self._run(inputs) if type(inputs) is dict else None
        if result is None:  # something is not as it should be: look closer, make arrays dense
            result = self._run(self._prepared(inputs))
            assert result is not None
        return result

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Plan for these input shapes, so that the first run does not have to.

        Raises:
            ArgumentError: a name is missing, or a shape does not fit the model.
        """
        missing = [info.name for info in self._inputs if info.name not in shapes]
        if missing:
            raise ArgumentError("shapes are missing", where=str(self._path), got=f"nothing for {', '.join(missing)}")
        self._native.prepare([list(shapes[info.name]) for info in self._inputs])

    @property
    def plan(self) -> tuple[int, list[PlanEntry]]:
        """Memory plan used last: bytes of the arena and the place of each value and scratch in it."""
        return self.statistics["arena_bytes"], [PlanEntry(*row) for row in self._native.plan()]

    def profile(self, on: bool = True) -> None:
        """Start (or stop) to measure the time of each node, from zero."""
        self._native.profile(on)

    def node_times(self) -> list[NodeTime]:
        """Return the times of all nodes since ``profile()``."""
        return [NodeTime(*row) for row in self._native.node_times()]

    def _prepared(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        from opforge.schema.registry import nearest

        known = {info.name for info in self._inputs}
        names = ", ".join(repr(info.name) for info in self._inputs)
        for name in inputs:
            if name not in known:
                near = nearest(str(name), sorted(known))
                hint = f"did you mean {near!r}?" if near else None
                raise ArgumentError(
                    "there is no such input", where=str(self._path), expected=names, got=repr(name), hint=hint
                )
        missing = [info.name for info in self._inputs if info.name not in inputs]
        if missing:
            raise ArgumentError(
                "inputs are missing",
                where=str(self._path),
                expected=names,
                got=f"nothing for {', '.join(map(repr, missing))}",
            )
        return {info.name: _dense(info, inputs[info.name]) for info in self._inputs}

    def __repr__(self) -> str:
        """Show the file and the signature."""
        inputs = ", ".join(f"{i.name}: {i.dtype}{list(i.shape or ())}" for i in self._inputs)
        return f"Session({str(self._path)!r}, ({inputs}) -> ({', '.join(o.name for o in self._outputs)}))"


def _info(name: str, dtype: int, dims: list[Dim] | None) -> ValueInfo:
    return ValueInfo(name, NUMPY_DTYPES.get(dtype, np.dtype(np.void)), None if dims is None else tuple(dims))


def _dense(info: ValueInfo, value: object) -> Array:
    """Turn what the caller gave into a dense array of the declared dtype, without changing values."""
    array = np.asarray(value)
    if array.dtype != info.dtype and array.dtype.newbyteorder("=") != info.dtype:
        raise DtypeError(
            "an input has the wrong dtype",
            where=f"input {info.name!r}",
            expected=info.dtype,
            got=array.dtype,
            hint="convert it with .astype(...)",
        )
    dense = np.require(array, dtype=info.dtype, requirements=["C", "A"])
    return dense if type(dense) is np.ndarray else dense.view(np.ndarray)


def _installed_folders() -> list[str]:
    """Return the folders of installed operator packages (group ``opforge.operators``), without importing them."""
    folders: list[str] = []
    for entry in packages.entry_points(group="opforge.operators"):
        top, *rest = entry.value.partition(":")[0].split(".")  # finding a dotted module would import its parent
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            continue
        for location in (spec.submodule_search_locations or ()) if spec is not None else ():
            package = Path(location, *rest)
            folders += [str(folder) for folder in (package, package / "_lib") if folder.is_dir()]
    return folders
