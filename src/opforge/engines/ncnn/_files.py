"""The three files of a converted model: ``NAME.param``, ``NAME.bin``, and ``NAME.json``, which says what ncnn cannot.

ncnn knows neither dtypes nor the names of operators; it reads past the end of a file that was cut, or stops half-way.
The description holds inputs and outputs as the model had them, the operators of our layers, and the size and CRC-32 of
the other two files.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from opforge._files import whole_file
from opforge.engines.ncnn._convert import Network, Port
from opforge.engines.ncnn._custom import CustomLayer, layer_kind
from opforge.engines.ncnn._net import Layer, param_text, parse_param, weight_bytes
from opforge.errors import ArgumentError, CorruptFileError, MissingOperatorError
from opforge.schema import Operator, discover, registry

__all__ = ["Written", "read_files", "write_files"]

_FORMAT: Final = 1
_SUFFIXES: Final = ("param", "bin", "json")


@dataclass(frozen=True)
class Written:
    """A converted model in files, read back: its layers without weights, which stay in ``weights``."""

    param: Path
    weights: Path
    layers: list[Layer]
    inputs: list[Port]
    outputs: list[Port]
    operators: dict[str, Operator]

    def custom(self) -> dict[str, CustomLayer]:
        """Read our layers, by name."""
        found = {}
        for layer in self.layers:
            operator = self.operators.get(layer.kind)
            if operator is not None:
                found[layer.name] = CustomLayer.read(operator, layer.params, f"{self.param}, {layer.name}")
        return found


def _siblings(path: Path) -> dict[str, Path]:
    if path.suffix != ".param":
        raise ArgumentError("not the name of a .param", where=str(path), expected="NAME.param")
    return {suffix: path.with_suffix(f".{suffix}") for suffix in _SUFFIXES}


def write_files(network: Network, path: Path) -> list[Path]:
    """Write ``path`` (a ``.param``), and the other two files beside it; return all three."""
    files = _siblings(path)
    contents = {"param": param_text(network.layers).encode(), "bin": weight_bytes(network.layers)}
    described = {
        "format": _FORMAT,
        "files": {name: {"bytes": len(data), "crc32": zlib.crc32(data)} for name, data in contents.items()},
        "inputs": [asdict(port) for port in network.inputs],
        "outputs": [asdict(port) for port in network.outputs],
        "operators": {
            kind: {"key": operator.key, "schema_hash": operator.schema_hash}
            for kind, operator in network.operators.items()
        },
        "notes": network.notes,
    }
    contents["json"] = (json.dumps(described, indent=2) + "\n").encode()
    for suffix in ("bin", "param", "json"):
        with whole_file(files[suffix]) as temporary:
            temporary.write_bytes(contents[suffix])
    return list(files.values())


def read_files(path: Path) -> Written:
    """Read a converted model.

    Raises:
        CorruptFileError: a file is missing, cut off or damaged.
        MissingOperatorError: an operator is not registered, or is another one than the model was converted with.
    """
    files = _siblings(path)
    for file in files.values():
        if not file.is_file():
            raise CorruptFileError("a file of the converted model is missing", where=str(path), expected=str(file))
    try:
        described = json.loads(files["json"].read_text(encoding="utf-8"))
        if described["format"] != _FORMAT:
            raise ValueError(f"format {described['format']}, this version reads {_FORMAT}")
        sums = {name: (int(row["bytes"]), int(row["crc32"])) for name, row in described["files"].items()}
        inputs, outputs = ([_port(row) for row in described[key]] for key in ("inputs", "outputs"))
        named = {kind: (str(row["key"]), str(row["schema_hash"])) for kind, row in described["operators"].items()}
        sums = {name: sums[name] for name in ("param", "bin")}
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise CorruptFileError(
            "not a description of a converted model",
            where=str(files["json"]),
            got=f"{type(problem).__name__}: {problem}",
        ) from None
    for name, (size, crc) in sums.items():
        _check(files[name], size, crc)
    layers = parse_param(files["param"].read_text(encoding="utf-8", errors="replace"), str(path))
    blobs = {name for layer in layers for name in layer.outputs}
    for port in (*inputs, *outputs):
        if port.blob not in blobs:
            raise CorruptFileError("the description names no blob", where=str(files["json"]), got=port.blob)
    return Written(path, files["bin"], layers, inputs, outputs, _operators(named, str(path)))


def _port(row: dict[str, Any]) -> Port:
    return Port(str(row["name"]), str(row["blob"]), str(row["dtype"]), tuple(row["shape"]), int(row["form"]))


def _check(file: Path, size: int, crc: int) -> None:
    if file.stat().st_size != size:
        raise CorruptFileError(
            "the file is cut off", where=str(file), expected=f"{size} bytes", got=file.stat().st_size
        )
    found = 0
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            found = zlib.crc32(block, found)
    if found != crc:
        raise CorruptFileError("the file is damaged", where=str(file), expected=f"CRC-32 {crc:08x}", got=f"{found:08x}")


def _operators(named: dict[str, tuple[str, str]], where: str) -> dict[str, Operator]:
    if named:
        discover()
    found, missing = {}, []
    for kind, (key, schema_hash) in named.items():
        name, _, version = key.rpartition(":")
        domain, _, plain = name.partition("::")
        operator = registry.find(domain, plain, int(version)) if version.isdigit() else None
        if operator is None or operator.key != key or kind != layer_kind(key):
            missing.append(f"{key}: nothing defines it")
        elif operator.schema_hash != schema_hash:
            missing.append(f"{key}: {operator.schema_hash[:12]} registered, {schema_hash[:12]} in the model")
        else:
            found[kind] = operator
    if missing:
        raise MissingOperatorError(
            "operators of the converted model are not here",
            where=where,
            got="; ".join(missing),
            hint="load the package with opforge.load(...) or --package, or convert the model again",
        )
    return found
