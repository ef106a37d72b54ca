"""ncnn: what a user reaches as ``opforge.ncnn``.

``convert(model, "net.ncnn.param")`` writes a model for ncnn; ``register(net, "net.ncnn.param")`` makes its nodes of
ours known to a net of ncnn's Python package; ``write_layers(folder)`` writes the C++ that does so for ncnn's C API.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opforge.engines.ncnn._emit import write_layers
from opforge.engines.ncnn._layer import register

if TYPE_CHECKING:
    import onnx

__all__ = ["convert", "register", "write_layers"]


def convert(
    model: str | os.PathLike[str] | onnx.ModelProto,
    path: str | os.PathLike[str],
    *,
    sizes: Mapping[str, int] | None = None,
) -> list[str]:
    """Convert an ONNX model; write ``path``, a ``.param``, and the ``.bin`` and ``.json`` beside it.

    Args:
        model: the model, or its file.
        path: of the ``.param``.
        sizes: numbers for named dimensions.

    Returns:
        What was decided: dimensions that became 1, since ncnn has no batch.

    Raises:
        UnsupportedError: nodes that ncnn has no layer for; all are listed with the reasons, and nothing is written.
        MissingOperatorError: the same, and some are custom nodes that nothing defines.
    """
    from opforge.engines.ncnn._convert import convert as converted
    from opforge.engines.ncnn._files import write_files

    network = converted(model, sizes=sizes)
    write_files(network, Path(path))
    return network.notes
