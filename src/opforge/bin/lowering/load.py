"""A model from a path or from memory: external data mapped once per file, nothing large copied or serialized."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir

from opforge.errors import ArgumentError
from opforge.onnx._read import compiled_hint
from opforge.passes import _well_formed

if TYPE_CHECKING:
    ModelLike = str | os.PathLike[str] | onnx.ModelProto

__all__ = ["load"]

LIMIT = 2**31
"""Bytes from which on protobuf neither writes nor reads a message."""
PIECEWISE = 1 << 28
"""Bytes of weights from which on a model in memory is hashed in parts."""


def load(model_or_path: ModelLike) -> tuple[ir.Model, str]:
    """Return the model and the SHA-256 of its file or message (external data not included).

    Raises:
        ArgumentError: there is no such file, it is no ONNX model, it contradicts itself, or external data is missing
            or too short.
    """
    if isinstance(model_or_path, onnx.ModelProto):
        model, digest = _well_formed.from_proto(model_or_path), _hash_message(model_or_path)
        folder = Path()
    else:
        path = Path(model_or_path)
        if not path.is_file():
            raise ArgumentError("the model does not exist", where=str(path), expected="an .onnx file")
        model, digest = _read(path)
        folder = path
    if not model.opset_imports:
        raise ArgumentError(
            "the model imports no operator set",
            where=str(folder) if folder.name else None,
            expected="an ONNX model with opset_import",
        )
    _map_external_data(model, folder)
    return model, digest


def _read(path: Path) -> tuple[ir.Model, str]:
    if path.stat().st_size >= LIMIT:
        raise ArgumentError(
            "a file of 2 GiB or more cannot be an ONNX model",
            where=str(path),
            expected="weights in external data",
            got=f"{path.stat().st_size} bytes",
            hint="save the model with onnx.save(model, path, save_as_external_data=True)",
        )
    if not path.stat().st_size:
        raise ArgumentError(
            "the file is not an ONNX model",
            where=str(path),
            expected="an .onnx file",
            got="an empty file",
            hint=compiled_hint(path),
        )
    content = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            content.update(block)
    try:
        model = _well_formed.quietly(ir.load, path)
    except Exception as error:  # protobuf raises many kinds
        hint = compiled_hint(path)
        raise _well_formed.unreadable("the file is not an ONNX model", error, str(path), hint) from error
    _well_formed.require(model)
    return model, content.hexdigest()


def _hash_message(model: onnx.ModelProto) -> str:
    """Hash a model in memory; one that protobuf might not serialize as a whole is hashed part by part."""
    content = hashlib.sha256()
    weights = model.graph.initializer
    if sum(_bytes(t) for t in weights) < PIECEWISE:
        content.update(model.SerializeToString(deterministic=True))
        return content.hexdigest()
    rest = [f"{o.domain}:{o.version}".encode() for o in model.opset_import]
    parts: list[object] = [*model.graph.node, *model.graph.input, *model.graph.output, *model.functions, *weights]
    for part in parts:
        content.update(part.SerializeToString(deterministic=True))  # type: ignore[attr-defined]
    for text in rest:
        content.update(text)
    return content.hexdigest()


def _bytes(tensor: onnx.TensorProto) -> int:
    """Estimate what a tensor adds to the message, without a look at its elements."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.data_type == onnx.TensorProto.STRING:
        return 0
    return math.prod(int(d) for d in tensor.dims) * int(ir.DataType(tensor.data_type).bitwidth) // 8


def _external(model: ir.Model) -> Iterator[tuple[str, ir.ExternalTensor, ir.Value | None]]:
    """Yield external tensors with what holds them: an initializer, or the attribute of a node (no value)."""
    roots = [model.graph, *(f.graph for f in model.functions.values())]
    for graph in (g for root in roots for g in (root, *root.subgraphs())):
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield f"initializer {value.name!r}", value.const_value, value
        for node in graph:
            for attr in node.attributes.values():
                if attr.type is ir.AttributeType.TENSOR and isinstance(attr.value, ir.ExternalTensor):
                    yield f"node {node.name!r} ({node.op_type}), attribute {attr.name!r}", attr.value, None


def _map_external_data(model: ir.Model, source: Path) -> None:
    """Let external tensors be views of one mapping per file (a mapping per tensor would need a descriptor for each)."""
    maps: dict[Path, mmap.mmap] = {}
    for where, tensor, holder in _external(model):
        path = Path(tensor.path)
        _require_place(where, path, source)
        size = path.stat().st_size
        begin, length = tensor.offset or 0, tensor.nbytes
        if begin < 0 or begin + length > size:
            raise ArgumentError(
                "external data is too short",
                where=where,
                expected=f"{length} bytes at {begin} of {path}",
                got=f"a file of {size} bytes",
            )
        if tensor.length is not None and tensor.length != length:
            raise ArgumentError(
                "external data does not fill the tensor", where=where, expected=f"{length} bytes", got=tensor.length
            )
        if holder is None or tensor.dtype.bitwidth < 8 or not length:
            continue  # onnx-ir unpacks what is smaller than a byte
        if path not in maps:
            with path.open("rb") as stream:
                maps[path] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        kind = np.dtype(tensor.dtype.numpy()).newbyteorder("<")
        shape = tensor.shape.numpy()
        data = np.frombuffer(maps[path], kind, math.prod(shape), begin).reshape(shape)
        holder.const_value = ir.Tensor(data, dtype=tensor.dtype, name=tensor.name)


def _require_place(where: str, path: Path, source: Path) -> None:
    """Refuse data outside the model's folder, by name or by links; the folder that the model is linked from counts."""
    if not path.is_file():
        raise ArgumentError(
            "external data does not exist",
            where=where,
            expected=str(path),
            hint="keep the data file beside the model, and give compile the model's path",
        )
    folders = [source.parent.resolve(), source.resolve().parent]
    named = Path(os.path.normpath(path.absolute()))
    inside = named.is_relative_to(source.parent.absolute()) and any(path.resolve().is_relative_to(f) for f in folders)
    if source.name and not inside:
        raise ArgumentError(
            "external data lies outside the model's folder",
            where=where,
            expected=f"a file below {source.parent}",
            got=str(path),
        )
