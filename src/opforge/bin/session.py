"""Session: a loaded .bin, ready to run from any number of threads."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from opforge._files import require_utf8
from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.encode import PlanEntry
from opforge.bin.layout import VALUE_KINDS
from opforge.bin.libraries import installed_folders, libraries_of
from opforge.bin.native import native
from opforge.bin.program import Dim
from opforge.errors import ArgumentError, DtypeError, MissingOperatorError, UnsupportedError

__all__ = ["EVENT", "EventKind", "MemoryBuffer", "NodeTensor", "NodeTime", "Run", "Session", "ValueInfo"]

Array = NDArray[Any]


@dataclass(frozen=True)
class ValueInfo:
    """An input or output of a session.

    Attributes:
        name: as in the model.
        dtype: NumPy dtype (``ml_dtypes`` for bf16 and the types of 8 bits and less; arrays hold one element per byte).
            That of strings is ``object``: arrays of str, or as inputs also of bytes that are UTF-8.
        shape: numbers, symbols or expressions over them, None where unknown; None when the rank is unknown.
        kind: "tensor", "sequence" (a list of arrays), "optional" (an array or None), "optional_sequence" (a list or
            None). Of the latter three, dtype and shape are those of the arrays inside.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[Dim, ...] | None
    kind: str = "tensor"

    def __str__(self) -> str:
        """Show dtype, dimensions and kind: ``float32[N, 4]``, ``sequence of int64[?]``."""
        dims = "of any rank" if self.shape is None else str([d if d is not None else "?" for d in self.shape])
        name = "string" if self.dtype == object else self.dtype
        tensor = f"{name}{'' if self.shape is not None else ' '}{dims}".replace("'", "")
        return _KIND_TEXTS[self.kind].format(tensor)


_KIND_TEXTS = {
    "tensor": "{}",
    "sequence": "sequence of {}",
    "optional": "optional {}",
    "optional_sequence": "optional sequence of {}",
}

Run = Callable[[Mapping[str, Any]], dict[str, Any]]
"""``Session.run``, or what is put around it."""

Data = Array | list[Array] | None
"""What an input or output is given as: an array, the arrays of a sequence, None for an empty optional."""


@dataclass(frozen=True)
class NodeTime:
    """Time that a node took, summed over the runs since profiling began."""

    domain: str
    op: str
    output: str
    runs: int
    nanoseconds: int


class EventKind(IntEnum):
    """What an event of a profile is: see ``OPFORGE_EVENT_...`` in ``opforge/runtime.h``."""

    NODE = 0
    AGAIN = 1
    HELP = 2
    RUN = 3
    COPIES = 4


EVENT = np.dtype(
    [("kind", "<i4"), ("node", "<i4"), ("thread", "<i4"), ("run", "<i4"), ("begin", "<i8"), ("end", "<i8")]
)
"""An event: kind, node of the program (-1: none), thread, run, begin and end in ns of the monotonic clock."""


@dataclass(frozen=True)
class NodeTensor:
    """An input or output of a node in a run: ONNX dtype number, bytes (with borders), shape (None: absent)."""

    dtype: int
    bytes: int
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class MemoryBuffer:
    """A piece of the arena: a result with its views and what is written over it, or scratch of a node.

    Attributes:
        scratch: whether it is scratch.
        id: the first of its values in the program, or the node.
        values: how many values lie on it.
        first: the node that writes it first.
        last: the node that reads it last; the number of nodes for what is copied at the end.
        offset: in the arena, in bytes.
        size: in bytes.
    """

    scratch: bool
    id: int
    values: int
    first: int
    last: int
    offset: int
    size: int


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
        reuse: bool = True,
        memory_limit: int | None = None,
        loop_limit: int | None = None,
    ) -> None:
        """Open a .bin.

        Args:
            path: the file.
            threads: threads of one run; None = all that the process may use, 1 = the calling thread alone.
            verify: "lazy" checks the weights' checksums on first touch, "full" while opening.
            libraries: kernel libraries, or folders that hold some; searched before ``OPFORGE_LIBRARY_PATH`` and
                installed operator packages. Where none are given, the operators that this process has declared serve
                too, and are compiled where need be.
            allow_native: False refuses models that need a kernel library.
            mmap: False copies the file, so that it may be shortened meanwhile.
            reuse: False gives every value memory of its own, to find faults of a kernel or of the memory plan.
            memory_limit: bytes that a run may take, for files of strangers: of the arena, of a tensor, of all values of
                a run that places them one by one. None = no limit.
            loop_limit: iterations of a Loop, for files of strangers. None = no limit.

        Raises:
            CorruptFileError: the file is damaged; the message names the section.
            BuildError: the source of an operator that this process has declared does not compile.
            MissingOperatorError: a kernel library is not found; the message lists where it was looked for.
            UnsupportedError: the file needs a newer reader, a kernel or CPU features that are not here.
            ArgumentError: there is no such file, or an option is wrong.
        """
        source = Path(path)
        if not source.is_file():
            raise ArgumentError("there is no such file", where=str(source), expected="a .bin made by opforge compile")
        require_utf8(str(source))
        if verify not in ("lazy", "full"):
            raise ArgumentError("unknown way to verify", where="verify", expected="'lazy' or 'full'", got=repr(verify))
        threads = _count("threads", threads, "threads must be at least 1")
        memory_limit = _count("memory_limit", memory_limit, "a limit must be at least 1")
        loop_limit = _count("loop_limit", loop_limit, "a limit must be at least 1")
        options = (threads or 0, verify == "full", [os.fspath(item) for item in libraries])
        further = (allow_native, mmap, reuse, NUMPY_DTYPES, memory_limit or 0, loop_limit or 0)
        try:
            self._native = native().Session(str(source), *options, [], *further)
        except MissingOperatorError:
            # Only now: listing the installed packages takes longer than opening most models.
            folders = installed_folders() if allow_native else []
            if allow_native and not libraries:
                folders += map(str, libraries_of(source))
            if not folders:
                raise
            self._native = native().Session(str(source), *options, folders, *further)
        self._path = source
        self._threads = threads
        self._run = self._native.run
        self._inputs = [_info(*row) for row in self._native.values(True)]
        self._outputs = [_info(*row) for row in self._native.values(False)]
        self._tensors_only = all(
            info.kind == "tensor" and info.dtype != object for info in (*self._inputs, *self._outputs)
        )
        if not self._tensors_only:
            self._run = self._run_values

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def threads(self) -> int | None:
        """Threads of one run as they were asked for; None = all that the process may use."""
        return self._threads

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
        """Counts and bytes: nodes, executed_nodes, plans, arena_bytes, live_bytes, views, in_place, dynamic."""
        return dict(self._native.statistics())

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model once.

        Args:
            inputs: an array for each input; a list of arrays for a sequence; None (or no entry) for an optional that
                is empty. Dtypes must be those of the model; shapes must fit its dimensions. Strings may be any array or
                nested list of str or bytes, with any of NumPy's dtypes for them.

        Returns:
            A new array for each output, a list of new arrays for a sequence, None for an empty optional. Strings are
            arrays of objects, which are str.

        Raises:
            ArgumentError: a name, kind, rank or dimension is wrong.
            DtypeError: a dtype is wrong.
        """
        result: dict[str, Any] | None = self._run(inputs) if type(inputs) is dict else None
        if result is None:  # something is not as it should be: look closer, make arrays dense
            result = self._run(self._prepared(inputs))
            assert result is not None
        return result

    def run_through(self, wrap: Callable[[Run], Run] | None) -> None:
        """Let every later ``run`` of this session go through what ``wrap`` makes of the plain one.

        None takes it away. A session that nothing was put around has no branch for it: its ``run`` is the method.

        Raises:
            ArgumentError: something is around it already.
        """
        if wrap is None:
            self.__dict__.pop("run", None)
            return
        if "run" in self.__dict__:
            raise ArgumentError(
                "the session is watched already",
                where=str(self._path),
                expected="one that watches at a time",
                hint="close the first one, or open a session of its own",
            )
        self.__dict__["run"] = wrap(self.run)

    def _run_values(self, inputs: dict[str, Any]) -> dict[str, Any]:
        prepared = self._prepared(inputs)
        given = [prepared[info.name] for info in self._inputs]
        results = self._native.run_values([[v] if isinstance(v, np.ndarray) else v for v in given])
        return {
            info.name: value if value is None or "sequence" in info.kind else value[0]
            for info, value in zip(self._outputs, results, strict=True)
        }

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Plan for these input shapes, so that the first run does not have to.

        Raises:
            ArgumentError: a name is missing, or a shape does not fit the model.
        """
        if not self._tensors_only:
            raise UnsupportedError(
                "a model with strings, sequences or optionals is not planned ahead",
                where=str(self._path),
                expected="inputs and outputs that are tensors of numbers or bool",
            )
        missing = [info.name for info in self._inputs if info.name not in shapes]
        if missing:
            raise ArgumentError("shapes are missing", where=str(self._path), got=f"nothing for {', '.join(missing)}")
        self._native.prepare([list(shapes[info.name]) for info in self._inputs])

    @property
    def plan(self) -> tuple[int, list[PlanEntry]]:
        """Memory plan used last: bytes of the arena and the place of each value and scratch in it."""
        return self.statistics["arena_bytes"], [PlanEntry(*row) for row in self._native.plan()]

    @property
    def buffers(self) -> list[MemoryBuffer]:
        """What lies in the arena of the memory plan used last, and from which node to which."""
        return [MemoryBuffer(*row) for row in self._native.buffers()]

    def profile(self, on: bool = True) -> None:
        """Start (or stop) to measure the time of each node, from zero."""
        self._native.profile(on)

    def profile_events(self, most: int, *, every: int = 1) -> None:
        """Start to measure, and keep the first ``most`` events as well; one run in ``every`` is watched."""
        self._native.profile_events(most, every)

    def events(self) -> tuple[NDArray[Any], int]:
        """Return the events since ``profile_events()`` (dtype ``EVENT``), and how many were not kept."""
        data, lost = self._native.events()
        return np.frombuffer(data, EVENT), lost

    def node_tensors(self, node: int) -> list[NodeTensor]:
        """Return inputs, then outputs of a node in the run used last; empty where the node is not executed.

        Of a node that runs for a few images at a time those of one time.
        """
        rows = self._native.node_tensors(node)
        return [NodeTensor(dtype, size, None if dims is None else tuple(dims)) for dtype, size, dims in rows]

    def node_times(self) -> list[NodeTime]:
        """Return the times of all nodes since ``profile()``."""
        return [NodeTime(*row) for row in self._native.node_times()]

    def _prepared(self, inputs: Mapping[str, Any]) -> dict[str, Data]:
        if not isinstance(inputs, Mapping):
            raise ArgumentError(
                "the inputs are no mapping of names to arrays",
                where=str(self._path),
                expected=", ".join(repr(info.name) for info in self._inputs),
                got=type(inputs).__name__,
                hint="session.run({name: array, ...})",
            )
        optional = {info.name for info in self._inputs if info.kind.startswith("optional")}
        if optional | set(inputs) != {info.name for info in self._inputs}:
            from opforge.engines._inputs import check_names  # which needs much that a session does not

            given = [*inputs, *(name for name in optional if name not in inputs)]
            check_names(given, [info.name for info in self._inputs], str(self._path))
        return {info.name: _value(info, inputs.get(info.name)) for info in self._inputs}

    def __repr__(self) -> str:
        """Show the file and the signature."""
        inputs = ", ".join(f"{i.name}: {i}" for i in self._inputs)
        return f"Session({str(self._path)!r}, ({inputs}) -> ({', '.join(o.name for o in self._outputs)}))"


def _info(name: str, dtype: int, dims: list[Dim] | None, kind: int) -> ValueInfo:
    found = NUMPY_DTYPES.get(dtype, np.dtype(np.void))
    return ValueInfo(name, found, None if dims is None else tuple(dims), VALUE_KINDS[kind])


def _count(name: str, value: object, words: str) -> int | None:
    """Return an option that counts something, as an int; NumPy's integers are good too."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ArgumentError("no whole number", where=name, expected="an int or None", got=repr(value))
    if operator.index(value) < 1:
        raise ArgumentError(words, where=name, expected=">= 1 or None", got=value)
    return operator.index(value)


def _value(info: ValueInfo, value: object) -> Data:
    """Turn what the caller gave into what an input of this kind takes."""
    where = f"input {info.name!r}"
    if value is None and info.kind.startswith("optional"):
        return None
    if not info.kind.endswith("sequence"):
        if value is None:
            raise ArgumentError("an input is None", where=where, expected=str(info), got="None")
        return _dense(info, value, where)
    if not isinstance(value, (list, tuple)):
        raise ArgumentError(
            "an input is not a list",
            where=where,
            expected=f"{info}, as a list of arrays",
            got=type(value).__name__,
            hint="put the array into a list" if isinstance(value, np.ndarray) else None,
        )
    return [_dense(info, item, f"element {k} of {where}") for k, item in enumerate(value)]


def _dense(info: ValueInfo, value: object, where: str) -> Array:
    """Turn what the caller gave into a dense array of the declared dtype, without changing values."""
    if info.dtype == object:
        return _strings(value, where)
    array = np.asarray(value)
    if array.dtype != info.dtype and array.dtype.newbyteorder("=") != info.dtype:
        raise DtypeError(
            "an input has the wrong dtype",
            where=where,
            expected=info.dtype,
            got=array.dtype,
            hint="convert it with .astype(...)",
        )
    dense = np.require(array, dtype=info.dtype, requirements=["C", "A"])
    return dense if type(dense) is np.ndarray else dense.view(np.ndarray)


def _strings(value: object, where: str) -> Array:
    """Turn what the caller gave into a dense array of str and bytes."""
    array = np.asarray(value)
    if array.dtype.kind not in "USTO":
        raise DtypeError("an input has the wrong dtype", where=where, expected="strings: str or bytes", got=array.dtype)
    dense = np.require(array.astype(object), requirements=["C", "A"])
    for index, item in np.ndenumerate(dense):
        if not isinstance(item, (str, bytes)):
            raise DtypeError(
                "an element of an input is no text",
                where=f"{where}, element {list(index)}",
                expected="str or bytes",
                got=f"{type(item).__name__} {item!r:.60}",
                hint="replace what is missing by a text, such as the empty one",
            )
        try:
            item.decode() if isinstance(item, bytes) else item.encode()
        except UnicodeError as error:
            raise ArgumentError(
                "an element of an input is no valid text",
                where=f"{where}, element {list(index)}",
                expected="text that UTF-8 can hold",
                got=str(error),
            ) from error
    return dense if type(dense) is np.ndarray else dense.view(np.ndarray)
