"""Read a model from a file; a file that is none is an error that says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opforge.errors import ArgumentError

if TYPE_CHECKING:
    import onnx

__all__ = ["compiled_hint", "read_model"]

_BIN = b"\x89OFB"  # how a .bin begins


def read_model(path: Path, *, weights: bool = True) -> onnx.ModelProto:
    """Read a model.

    Args:
        path: the file.
        weights: also read tensors that lie in other files.

    Raises:
        ArgumentError: the file, or one that it refers to, cannot be read or is no ONNX model.
    """
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=weights)
    except (OSError, onnx.checker.ValidationError) as problem:  # the latter of data in other files
        raise ArgumentError("a file of this model cannot be read", where=str(path), got=str(problem)) from None
    except Exception as problem:  # protobuf's and onnx's own kinds
        got = f"{type(problem).__name__}: {problem}"
        raise ArgumentError(
            "not an ONNX model", where=str(path), expected="a protobuf file", got=got, hint=compiled_hint(path)
        ) from None
    if not model.HasField("graph"):
        got = "no graph" if path.stat().st_size else "an empty file"
        raise ArgumentError(
            "not an ONNX model", where=str(path), expected="a model with a graph", got=got, hint=compiled_hint(path)
        )
    return model


def compiled_hint(path: Path) -> str:
    """Return what to do where a file that should be a model is a compiled one, or none that can be read."""
    with path.open("rb") as stream:
        found = stream.read(len(_BIN)) == _BIN
    if found:
        return "this is a compiled .bin; name the .onnx that it was made from"
    return "the file is cut or damaged, or of another format: export or fetch it again"
