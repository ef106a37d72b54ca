"""LiteRT (TensorFlow Lite): what a user reaches as ``opforge.litert``.

``session(model)`` runs a .tflite model on NumPy arrays with our kernels for its custom nodes. ``convert(model, path)``
writes an ONNX model as a .tflite file. ``prepare(model)`` puts a model of TensorFlow's converter into the form that
LiteRT's own API runs with our adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opforge._files import whole_file
from opforge.engines.litert._adapter import adapter_path, register_library
from opforge.engines.litert._model import TfliteModel
from opforge.engines.litert._session import Session

if TYPE_CHECKING:
    import onnx

__all__ = ["Session", "adapter_path", "convert", "prepare", "register_library", "session"]


def session(model: str | Path | bytes, *, threads: int | None = None, profile: bool = False) -> Session:
    """Open a session on a .tflite model.

    Custom nodes may be of TensorFlow's converter (``allow_custom_ops`` on functions that call our operators) or of
    our own writer.

    Args:
        model: file of the model, or its bytes.
        threads: of LiteRT's own kernels and of ours; None = LiteRT's choice, and opforge's whole pool.
        profile: whether ``Session.profile`` may be called.

    Raises:
        ModuleNotFoundError: LiteRT is not installed.
        UnsupportedError: LiteRT is too old, or cannot run the model.
        MissingOperatorError: custom nodes whose operators are not registered; all are listed.
        CorruptFileError: the file is damaged.
        ArgumentError: there is no such file, or nodes do not fit their operators.
    """
    return Session(model, threads=threads, profile=profile)


def convert(
    model: str | Path | onnx.ModelProto,
    path: str | Path | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> bytes:
    """Write an ONNX model as a .tflite file and return its bytes.

    Standard operators become LiteRT's own, registered ones custom nodes named ``domain::Name:version``; bodies of
    other functions are inlined. Inputs keep their names, in the signature ``serving_default``.

    Args:
        model: an ONNX model or its file.
        path: the file to write; None = only return the bytes.
        shapes: sizes of inputs by name. Open dimensions stay open, but for some operators LiteRT needs sizes that
            are known: then the error asks for this.

    Raises:
        MissingOperatorError: nodes have neither a registered operator nor a body; all are listed.
        UnsupportedError: nodes that LiteRT has no operators for; all are listed.
        ArgumentError: the model contradicts itself, or ``shapes`` contradict the model.
        ModuleNotFoundError: LiteRT is not installed.
    """
    from opforge.engines.litert import writer

    data = writer.convert(model, shapes)
    if path is not None:
        with whole_file(Path(path)) as draft:
            draft.write_bytes(data)
    return data


def prepare(model: str | Path | bytes) -> bytes:
    """Return a model in the form in which LiteRT's C API runs our kernels.

    LiteRT gives one state to all custom nodes of a name and takes constants of custom nodes only at multiples of 64
    bytes: nodes of one operator with different attributes get names of their own (``NAME#1``, ...), and constants
    move. A session does this itself; a program in C or C++ loads what this returns.

    Raises:
        UnsupportedError: a custom node has an absent input in the form of the file format.
        CorruptFileError: the file is damaged.
        ArgumentError: there is no such file.
    """
    return TfliteModel(model).prepared().data
