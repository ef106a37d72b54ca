"""ExecuTorch: what a user reaches as ``opforge.executorch``.

``lower(module, args, path)`` writes a .pte in which nodes of ours stay what they are, ``session(path)`` runs it with
our kernels. ``register(op)`` is for those who load programs themselves.
"""

from __future__ import annotations

from pathlib import Path

from opforge.build.adapters import adapter_sources
from opforge.engines.executorch._adapter import recipe
from opforge.engines.executorch._lower import lower
from opforge.engines.executorch._session import Session, register, register_library

__all__ = ["Session", "adapter_path", "lower", "register", "register_library", "session", "sources"]


def session(path: str | Path, *, method: str = "forward", threads: int | None = None) -> Session:
    """Load a method of a .pte, with our kernels for the operators of ours that it calls.

    Args:
        path: the file.
        method: which of its methods.
        threads: for our kernels; None = the whole pool. ExecuTorch's own kernels have a pool of their own.

    Raises:
        CorruptFileError: the file is no .pte, or is cut off.
        ArgumentError: it has no such method, or was lowered with another declaration of an operator.
        MissingOperatorError: nothing here provides an operator that it calls.
    """
    return Session(Path(path), method=method, threads=threads)


def adapter_path() -> Path:
    """Return the compiled adapter, building it where that has not been done."""
    return recipe().build()


def sources() -> Path:
    """Return the folder of the adapter's sources, for applications in C++ that compile it against their ExecuTorch."""
    return adapter_sources() / "executorch"
