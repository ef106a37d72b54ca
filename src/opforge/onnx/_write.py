"""Write a model to a file, all of it or nothing; with its tensors beside it where one message cannot hold them."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
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
    beside = _name_beside(path)
    try:
        with whole_file(path) as temporary:
            with beside.open("xb") as file:
                for tensor in model.graph.initializer:
                    if tensor.name in data:
                        _refer(tensor, beside.name, file, data[tensor.name])
            temporary.write_bytes(model.SerializeToString())
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _remove_older(path, beside)


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


def _name_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{secrets.token_hex(4)}.data")


def _remove_older(path: Path, kept: Path) -> None:
    for older in path.parent.glob(f"{path.name}.????????.data"):
        if older != kept:
            older.unlink(missing_ok=True)


def _write_external(model: onnx.ModelProto, path: Path) -> None:
    import onnx

    data = _name_beside(path)
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    try:
        with whole_file(path) as temporary:
            onnx.save_model(bare, str(temporary), save_as_external_data=True, location=data.name)
            data.chmod(permissions(0o666))
    except BaseException:
        data.unlink(missing_ok=True)
        raise
    _remove_older(path, data)
