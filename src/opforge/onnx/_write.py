"""Write a model to a file, all of it or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from opforge._files import permissions, whole_file

if TYPE_CHECKING:
    import onnx

__all__ = ["write_model"]

_PROTOBUF_LIMIT = 2**31 - 2**20


def write_model(model: onnx.ModelProto, path: Path) -> None:
    """Save ``model`` to ``path`` by way of a temporary file beside it.

    A model that does not fit into one protobuf message (2 GiB) gets its tensors in a file of their own beside it,
    ``<name>.<random digits>.data``, so that an older model keeps its tensors until the new one is whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if model.ByteSize() > _PROTOBUF_LIMIT:
        _write_external(model, path)
        return
    with whole_file(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def _write_external(model: onnx.ModelProto, path: Path) -> None:
    import secrets

    import onnx

    data = path.with_name(f"{path.name}.{secrets.token_hex(4)}.data")
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    try:
        with whole_file(path) as temporary:
            onnx.save_model(bare, str(temporary), save_as_external_data=True, location=data.name)
            data.chmod(permissions(0o666))
    except BaseException:
        data.unlink(missing_ok=True)
        raise
    for older in path.parent.glob(f"{path.name}.????????.data"):
        if older != data:
            older.unlink(missing_ok=True)
