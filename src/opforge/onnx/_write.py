"""Write a model to a file, all of it or nothing; with its tensors beside it where one message cannot hold them."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from opforge._files import permissions, whole_file

if TYPE_CHECKING:
    import onnx

__all__ = ["fits_one_message", "write_model", "write_with_data"]

_PROTOBUF_LIMIT = 2**31 - 2**20


_ALIGNMENT = 64


def fits_one_message(model: onnx.ModelProto) -> bool:
    """Whether protobuf can write the model as one message (2 GiB); asking protobuf alone raises beyond that."""
    from google.protobuf.message import EncodeError
    from onnx import TensorProto, helper

    known = set(helper.get_all_tensor_dtypes()) - {TensorProto.STRING}
    held = [t for t in model.graph.initializer if not t.external_data and t.data_type in known]
    sizes = (math.prod(t.dims) * helper.tensor_dtype_to_np_dtype(t.data_type).itemsize for t in held)
    if sum(sizes) > _PROTOBUF_LIMIT:
        return False
    try:
        return bool(model.ByteSize() <= _PROTOBUF_LIMIT)
    except EncodeError:
        return False


def write_model(model: onnx.ModelProto, path: Path) -> None:
    """Save ``model`` to ``path`` by way of a temporary file beside it.

    A model that does not fit into one protobuf message (2 GiB) gets its tensors in a file of their own beside it,
    ``<name>.<random digits>.data``, so that an older model keeps its tensors until the new one is whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not fits_one_message(model):
        _write_external(model, path)
        return
    with whole_file(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def write_with_data(model: onnx.ModelProto, path: Path, data: Mapping[str, bytes]) -> None:
    """Save ``model`` to ``path``, and the bytes of some of its tensors, by name, to a file beside it.

    These tensors refer to the file afterwards, in ``model`` too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path) as beside, whole_file(path) as temporary:
        with beside.open("xb") as file:
            for tensor in model.graph.initializer:
                if tensor.name in data:
                    _refer(tensor, beside.name, file, data[tensor.name])
        temporary.write_bytes(model.SerializeToString())


def _refer(tensor: onnx.TensorProto, name: str, file: BinaryIO, data: bytes) -> None:
    from onnx import TensorProto

    file.seek(-file.tell() % _ALIGNMENT, 1)
    rows = {"location": name, "offset": file.tell(), "length": len(data)}
    file.write(data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in rows.items():
        tensor.external_data.add(key=key, value=str(value))


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Give the name of a file for the tensors of a model; when the model is written, those of earlier ones go."""
    kept = path.with_name(f"{path.name}.{secrets.token_hex(4)}.data")
    with _turn(path.parent):
        try:
            yield kept
        except BaseException:
            kept.unlink(missing_ok=True)
            raise
        for older in path.parent.glob(f"{path.name}.????????.data"):
            if older != kept:
                older.unlink(missing_ok=True)


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Wait for other writers in a folder: one would remove what the other's model refers to, or is about to."""
    handle = None
    try:
        with contextlib.suppress(OSError):  # a folder that may not be read, a file system without locks
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _write_external(model: onnx.ModelProto, path: Path) -> None:
    import onnx

    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    with _beside(path) as data, whole_file(path) as temporary:
        onnx.save_model(bare, str(temporary), save_as_external_data=True, location=data.name)
        data.chmod(permissions(0o666))
