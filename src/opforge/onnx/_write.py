"""Write a model to a file, all of it or nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["write_model"]

_PROTOBUF_LIMIT = 2**31 - 2**20


def write_model(model: onnx.ModelProto, path: Path) -> None:
    """Save ``model`` to ``path`` by way of a temporary file beside it.

    A model that does not fit into one protobuf message (2 GiB) gets its tensors in ``<name>.data`` beside it.
    """
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    if model.ByteSize() > _PROTOBUF_LIMIT:
        data = path.name + ".data"
        (path.parent / data).unlink(missing_ok=True)
        onnx.save_model(model, str(path), save_as_external_data=True, location=data)
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(model.SerializeToString())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
