"""The ExecuTorch engine: .pte files on its Python binding, our nodes by our kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.build.toolchain import find_compiler
from opforge.engines._protocol import Array, Availability, NodeTime, Traits
from opforge.engines.executorch._adapter import recipe, unfit, version
from opforge.errors import ToolchainError, UnsupportedError
from opforge.schema import Operator

if TYPE_CHECKING:
    from opforge.engines.executorch._session import Session

__all__ = ["ExecuTorch"]

_DTYPES = "float16 bfloat16 float32 float64 int8 uint8 int16 int32 int64 bool".split()


class ExecuTorch:
    """Loads .pte files, which ``opforge.executorch.lower`` or any ExecuTorch tool makes."""

    name = "executorch"

    def availability(self) -> Availability:
        """Say whether the package is installed and fits, and the adapter is built or can be."""
        reason = unfit()
        if reason is not None:
            return Availability(False, reason=reason[0], hint=reason[1])
        try:
            if recipe().built() is None:
                find_compiler()
        except ToolchainError as problem:
            text = f"its adapter has to be compiled, and there is no compiler: {problem.got or problem.what}"
            return Availability(False, version=version(), reason=text, hint=problem.hint or "")
        return Availability(True, version=version())

    def traits(self) -> Traits:
        """What its Python binding passes; backends that a file names are ExecuTorch's own matter."""
        return Traits(("cpu",), tuple(_DTYPES), True, ("kernels",), (".pte",))

    def prepare(self) -> None:
        """Import the package, and build the adapter where it is not there yet."""
        import_module("opforge.engines.executorch._session")
        from opforge.engines.executorch._adapter import adapter

        adapter()

    def load(self, model: Path, *, threads: int | None = None) -> Session:
        """Load the method ``forward`` of a .pte.

        Raises:
            UnsupportedError: the file is of another kind.
            CorruptFileError: the file is no .pte, or is cut off.
            MissingOperatorError: nothing here provides an operator that it calls.
        """
        if model.suffix != ".pte":
            raise UnsupportedError(
                "ExecuTorch takes programs that were lowered from PyTorch",
                where=str(model),
                expected="a .pte",
                hint="opforge.executorch.lower, or opforge export net.py:make -o net.pte",
            )
        from opforge.engines.executorch._session import Session

        return Session(model, threads=threads)

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> list[NodeTime]:
        """Read what ExecuTorch's event tracer writes."""
        from opforge.engines.executorch._profile import profile

        return profile(model, inputs, runs, threads)

    def write_operator(
        self, operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any], output: Path
    ) -> dict[str, Array]:
        """Lower a module that computes one operator; see ``opforge.engines.OperatorWriter``."""
        from opforge.engines.executorch._lower import lower_operator

        return lower_operator(operator, inputs, attributes, output)
