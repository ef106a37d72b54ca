"""A .pte that runs in ExecuTorch's Python binding, with our kernels for our nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from opforge.build import LoadedLibrary
from opforge.engines._inputs import array_for, check_names
from opforge.engines._protocol import TensorInfo
from opforge.engines.executorch._adapter import adapter
from opforge.engines.executorch._lower import METADATA
from opforge.engines.executorch._program import PteProgram, read_program
from opforge.engines.executorch._variants import OVERLOAD, entry_named, kernel_name
from opforge.errors import ArgumentError, CorruptFileError, MissingOperatorError, UnsupportedError
from opforge.frameworks import torch as host
from opforge.frameworks.torch import Entry
from opforge.frameworks.torch._arrays import to_numpy, to_tensor
from opforge.schema import DType, Operator

if TYPE_CHECKING:
    from executorch.runtime import Method

__all__ = ["Session", "register", "register_library"]

_SCALAR_TYPES: Final = {
    0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 11: "bool", 15: "bf16",
    27: "u16", 28: "u32", 29: "u64",
}  # fmt: skip
"""ExecuTorch's numbers of dtypes."""


def register(*operators: Operator) -> None:
    """Register the kernels of operators with ExecuTorch; a session does it for the file that it opens.

    Raises:
        ToolchainError: a kernel operator, or the adapter, has to be compiled, and there is no compiler.
    """
    for operator in operators:
        schema = host.register(operator)._schema
        entry = entry_named(schema.name)
        assert entry is not None
        _define(entry)


def register_library(library: LoadedLibrary) -> None:
    """Register every operator of a kernel library that ExecuTorch can call."""
    for entry in host.register_library(library):
        if not any(output.optional for output in entry.signature.outputs):
            _define(entry)


def _define(entry: Entry) -> None:
    adapter().define(entry.library.address, kernel_name(entry))


class Session:
    """One method of a .pte, loaded.

    Attributes:
        inputs: name, dtype and dimensions of each input; a dynamic dimension has a name where the file was lowered by
            opforge, and else its upper bound.
        outputs: names.
        operators: what the method calls, as ``namespace::name.overload``.
        method: ExecuTorch's own object.
    """

    def __init__(self, path: Path, *, method: str = "forward", threads: int | None = None, trace: bool = False) -> None:
        """Register what the file needs, and load the method.

        Args:
            path: the .pte.
            method: which of its methods.
            threads: for our kernels; None = the whole pool. ExecuTorch's own kernels have a pool of their own.
            trace: whether ExecuTorch's event tracer records each call, for `write_trace`.

        Raises:
            CorruptFileError: the file is no .pte, or is cut off.
            ArgumentError: it has no such method, or was lowered with another declaration of an operator.
            MissingOperatorError: nothing here provides an operator that it calls.
        """
        program = read_program(path)
        if method not in program.methods:
            names = [name for name in program.methods if name != METADATA]
            raise ArgumentError(f"the file has no method {method!r}", where=str(path), expected=", ".join(names))
        _provide(program, method, str(path))
        self.path, self.operators = path, program.methods[method]
        self._threads = threads or 0
        self._program, self.method = _open(path, method, trace)
        said = _said(self._program, program)
        _check_hashes(said.get("operators", {}), str(path))
        self.inputs = _inputs(self.method, said)
        self.outputs: list[str] = said.get("outputs") or [
            f"output{k}" for k in range(self.method.metadata.num_outputs())
        ]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """Run once on arrays, inputs by name to outputs by name.

        Raises:
            ArgumentError: an input is missing, unknown or of a wrong shape; so for what a kernel finds.
            DtypeError: an input has a wrong dtype.
        """
        check_names(inputs, [info.name for info in self.inputs], str(self.path))
        tensors = [to_tensor(np.asarray(array_for(info, inputs[info.name]), order="C")) for info in self.inputs]
        return dict(zip(self.outputs, map(_array, self.execute(tensors)), strict=True))

    def execute(self, tensors: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Run once on tensors, in the order of ``inputs``.

        Raises:
            ArgumentError: ExecuTorch, or a kernel, refuses the inputs.
        """
        kernels = adapter()
        kernels.threads(self._threads)
        try:
            results: Sequence[Any] = self.method.execute(tensors)
        except Exception as problem:
            known = kernels.last_failure()
            if known is not None:
                raise known from problem
            raise ArgumentError("ExecuTorch refused these inputs", where=str(self.path), got=str(problem)) from problem
        return results

    def write_trace(self, path: Path) -> None:
        """Write what the event tracer recorded, as an ETDump file."""
        self._program.write_etdump_result_to_file(str(path), None)


def _provide(program: PteProgram, method: str, where: str) -> None:
    """Register what the method calls and ExecuTorch does not have yet."""
    from executorch.runtime import Runtime

    known = Runtime.get().operator_registry.operator_names
    missing = []
    for name in program.methods[method]:
        if name in known:
            continue
        plain, _, overload = name.rpartition(".")
        entry = entry_named(plain) if overload == OVERLOAD and "::" in plain else None
        if entry is None:
            missing.append(name)
        else:
            _define(entry)
    if missing:
        raise MissingOperatorError(
            "nothing here provides operators that this file calls",
            where=where,
            got=", ".join(missing),
            hint="load their package (of.load, --package), or the library that registers them with ExecuTorch",
        )


def _open(path: Path, method: str, trace: bool) -> tuple[Any, Method]:
    from executorch.runtime import Runtime, Verification

    try:
        check = Verification.InternalConsistency
        program = Runtime.get().load_program(path, verification=check, enable_etdump=trace)
        loaded = program.load_method(method)
    except Exception as problem:
        raise CorruptFileError(
            "ExecuTorch cannot load this file",
            where=str(path),
            got=str(problem),
            hint="lower the model again, or copy the file again",
        ) from problem
    assert loaded is not None
    return program, loaded


def _said(program: Any, read: PteProgram) -> dict[str, Any]:  # noqa: ANN401 - executorch.runtime.Program
    """Read what `lower` wrote; nothing where another tool made the file."""
    if METADATA not in read.methods:
        return {}
    (text,) = program.load_method(METADATA).execute([])
    said = json.loads(text)
    return said if isinstance(said, dict) else {}


def _check_hashes(lowered: Mapping[str, str], where: str) -> None:
    for name, schema_hash in lowered.items():
        entry = entry_named(name.rpartition(".")[0])
        if entry is not None and entry.library.schema_hash != schema_hash:
            raise ArgumentError(
                "the file was lowered with another declaration of an operator",
                where=where,
                expected=f"{entry.key} {entry.signature} ({entry.library.schema_hash[:12]})",
                got=f"{name} ({schema_hash[:12]})",
                hint="lower the model again, or install the operator package in the version that it was lowered with",
            )


def _inputs(method: Method, said: Mapping[str, Any]) -> list[TensorInfo]:
    meta = method.metadata
    rows = said.get("inputs") or []
    found = []
    for k in range(meta.num_inputs()):
        tensor = meta.input_tensor_meta(k)
        row: dict[str, Any] = rows[k] if k < len(rows) else {"name": f"input{k}", "shape": list(tensor.sizes())}
        name = _SCALAR_TYPES.get(tensor.dtype())
        if name is None:
            raise UnsupportedError(
                "an input has a dtype that is not supported here", where=row["name"], got=str(tensor)
            )
        found.append(TensorInfo(row["name"], np.dtype(DType.parse(name).numpy), tuple(row["shape"])))
    return found


def _array(value: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401 - a tensor, or a number where the model returns one
    return to_numpy(value) if isinstance(value, torch.Tensor) else np.asarray(value)
