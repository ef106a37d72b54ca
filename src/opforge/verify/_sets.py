"""Sets of inputs for a model: random ones, arrays, files, folders of data as ONNX's tests keep them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opforge.engines import TensorInfo
from opforge.errors import ArgumentError
from opforge.verify._inputs import gather_values, load_npz

__all__ = ["InputSet", "Source", "read_sets"]

Array = np.ndarray[Any, Any]
Source = Mapping[str, Any] | str | Path
_KINDS = "an .npz file, a folder of .npz files, of .npy files named by input, or of test_data_set_* with input_0.pb"


@dataclass(frozen=True)
class InputSet:
    """Inputs by name, and the outputs that were stored with them.

    Attributes:
        name: of the set, for reports.
        values: inputs by name.
        expected: outputs by name; empty where none are stored.
    """

    name: str
    values: Mapping[str, Any]
    expected: Mapping[str, Any]


def read_sets(
    source: Source | Sequence[Source], infos: Sequence[TensorInfo] | None, outputs: Sequence[str]
) -> list[InputSet]:
    """Read what the caller names.

    Args:
        source: arrays by name, a file or a folder, or several of them.
        infos: declared inputs; None = taken as given.
        outputs: names of the model's outputs, for stored ones.

    Raises:
        ArgumentError: a file or folder holds no inputs, or they do not fit the declared ones.
    """
    if isinstance(source, Mapping):
        return [_made("given", source, {}, infos)]
    if not isinstance(source, str | Path):
        found = [item for one in source for item in read_sets(one, infos, outputs)]
        if len({item.name for item in found}) < len(found):
            found = [InputSet(f"{k}: {item.name}", item.values, item.expected) for k, item in enumerate(found)]
        return found
    path = Path(source)
    if not path.is_dir():
        return [_made(path.name, load_npz(path), {}, infos)]
    folders = [path, *sorted(p for p in path.iterdir() if p.is_dir())]
    for read in (_protobuf, _archives, _arrays):
        made = [item for folder in folders for item in read(folder, infos, outputs)]
        if made:
            return made
    raise ArgumentError("the folder holds no inputs", where=str(path), expected=_KINDS)


def _made(
    name: str, values: Mapping[str, Any], expected: Mapping[str, Any], infos: Sequence[TensorInfo] | None
) -> InputSet:
    return InputSet(name, dict(values) if infos is None else gather_values(values, infos), expected)


def _archives(folder: Path, infos: Sequence[TensorInfo] | None, _outputs: Sequence[str]) -> list[InputSet]:
    return [_made(path.name, load_npz(path), {}, infos) for path in sorted(folder.glob("*.npz"))]


def _arrays(folder: Path, infos: Sequence[TensorInfo] | None, _outputs: Sequence[str]) -> list[InputSet]:
    files = sorted(folder.glob("*.npy"))
    try:
        values = {path.stem: np.load(path, allow_pickle=False) for path in files}
    except (ValueError, EOFError, OSError) as problem:
        raise ArgumentError("not an array file", where=str(folder), expected=".npy", got=str(problem)) from None
    return [_made(folder.name, values, {}, infos)] if files else []


def _protobuf(folder: Path, infos: Sequence[TensorInfo] | None, outputs: Sequence[str]) -> list[InputSet]:
    """input_0.pb, input_1.pb, ... in the order of the model's inputs, and output_0.pb, ... beside them."""
    if not (folder / "input_0.pb").is_file():
        return []
    if infos is None:
        raise ArgumentError("stored inputs need an engine that declares its inputs", where=str(folder))
    sides = [
        [(folder / f"{side}_{k}.pb") for k in range(len(list(folder.glob(f"{side}_*.pb"))))]
        for side in ("input", "output")
    ]
    if len(sides[0]) > len(infos) or len(sides[1]) > len(outputs):
        expected = f"at most {len(infos)} inputs and {len(outputs)} outputs, as the model has"
        got = f"{len(sides[0])} and {len(sides[1])}"
        raise ArgumentError(
            "the folder holds more tensors than the model", where=str(folder), expected=expected, got=got
        )
    kinds = [info.kind for info in infos]
    values = {info.name: _value(path, kind) for info, path, kind in zip(infos, sides[0], kinds, strict=False)}
    expected_values = {name: _value(path, "") for name, path in zip(outputs, sides[1], strict=False)}
    return [_made(folder.name, values, expected_values, infos)]


def _value(path: Path, kind: str) -> Any:  # noqa: ANN401 - an array, a list of them or None
    """Read one file, whose message says nothing of its own kind; outputs (kind "") are tried as a tensor first."""
    import onnx
    from onnx import numpy_helper

    readers: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "tensor": (onnx.TensorProto, numpy_helper.to_array),
        "sequence": (onnx.SequenceProto, numpy_helper.to_list),
        "optional": (onnx.OptionalProto, numpy_helper.to_optional),
    }
    wanted = [kind.partition("_")[0]] if kind else list(readers)
    problems = []
    for name in wanted:
        message, read = readers[name]
        try:
            found = message.FromString(path.read_bytes())
            if name != "tensor" or found.data_type:
                return read(found)
            problems.append("a tensor without a type")
        except Exception as problem:  # protobuf's and onnx's own kinds
            problems.append(f"{type(problem).__name__}: {problem}")
    raise ArgumentError("not a stored value", where=str(path), expected=" or ".join(wanted), got="; ".join(problems))
