"""Which nodes of an ONNX model each executed node of OpenVINO stands for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from opforge.onnx._read import read_model

if TYPE_CHECKING:
    import openvino

__all__ = ["origins_of"]


def origins_of(compiled: openvino.CompiledModel, path: Path) -> dict[str, tuple[str, ...]]:
    """Return the names of the model's nodes (or of their first outputs) for each node of the compiled model.

    OpenVINO's nodes carry the names of what was fused into them. Its reader of ONNX names nodes after the model's, but
    one that makes an output after that output, and further ones of the same node with a suffix (``fc1/WithoutBiases``).
    """
    if path.suffix != ".onnx":
        return {}
    known: dict[str, str] = {}
    for node in read_model(path, weights=False).graph.node:
        name = node.name or next(iter(node.output), "")
        known.update(dict.fromkeys((name, *node.output), name))
    found = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        information = node.get_rt_info()
        if "originalLayersNames" not in information:
            continue
        layers = str(information["originalLayersNames"].astype(str)).split(",")
        names = (_known(layer, known) for layer in layers)
        found[str(node.get_friendly_name())] = tuple(dict.fromkeys(name for name in names if name))
    return found


def _known(layer: str, known: Mapping[str, str]) -> str:
    """Return the node of the model that a layer was made from: its name, less suffixes."""
    while layer and layer not in known:
        layer = layer.rpartition("/")[0]
    return known.get(layer, "")
