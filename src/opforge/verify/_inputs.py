"""Inputs for a model: from an .npz file, or random by its declared inputs."""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines import TensorInfo
from opforge.engines._inputs import check_names
from opforge.errors import ArgumentError
from opforge.verify._draws import Draw

if TYPE_CHECKING:
    import onnx

__all__ = [
    "flat_values",
    "gather_values",
    "input_shapes",
    "load_npz",
    "model_path",
    "random_inputs",
]

Array = np.ndarray[Any, Any]
_DEFAULT_SIZE = 2
_SEQUENCE = 2
"""Length of random sequences."""


def load_npz(path: Path) -> dict[str, Array]:
    """Read named arrays; nothing is unpickled.

    Raises:
        ArgumentError: the file is no .npz, or holds Python objects.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        with archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError) as problem:
        raise ArgumentError(
            "not an .npz file of plain arrays",
            where=str(path),
            expected="what numpy.savez(file, name=array, ...) writes",
            got=str(problem),
        ) from None


@contextmanager
def model_path(model: str | Path | onnx.ModelProto) -> Iterator[Path]:
    """Give the path of a model; one in memory is written to a temporary file, for engines read files."""
    if isinstance(model, str | Path):
        yield Path(model)
        return
    from opforge.onnx._write import write_model

    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
        path = Path(folder) / "model.onnx"
        write_model(model, path)
        yield path


def gather_values(values: Mapping[str, Array], infos: Sequence[TensorInfo]) -> dict[str, Any]:
    """Put arrays with names like ``s[0]`` into the list that a sequence ``s`` is given as.

    Raises:
        ArgumentError: an unknown name, or an input that is no optional is missing.
    """
    made: dict[str, Any] = dict(values)
    for info in infos:
        if info.kind.endswith("sequence") and info.name not in made:
            items: list[Array] = []
            while (name := f"{info.name}[{len(items)}]") in made:
                items.append(made.pop(name))
            if items or not info.kind.startswith("optional"):
                made[info.name] = items
    optional = [info.name for info in infos if info.kind.startswith("optional") and info.name not in made]
    check_names([*made, *optional], [info.name for info in infos])
    return made


def flat_values(values: Mapping[str, Any]) -> dict[str, Array]:
    """Return the arrays of inputs or outputs by name: those of a sequence as ``name[k]``, of an empty optional none."""
    made: dict[str, Array] = {}
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            made.update({f"{name}[{k}]": np.asarray(item) for k, item in enumerate(value)})
        elif value is not None:
            made[name] = np.asarray(value)
    return made


def random_inputs(
    infos: Sequence[TensorInfo],
    *,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    high: int = 100,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    values: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Draw inputs by dtype and shape; the same seed gives the same arrays for the same input names.

    A sequence becomes a list of two arrays, and an optional is given.

    Args:
        infos: declared inputs.
        seed: of the generator.
        sizes: value for each named dimension, and ``{"input.axis": n}`` for nameless ones; others become 2.
        high: integers are drawn below this number. Inputs whose name says "mask" are all ones.
        ranges: input, or ``*`` for the others -> lowest and highest value.
        values: input, or ``*`` for the others -> class of floating-point values (``opforge.verify._draws.CLASSES``).
    """
    shapes = input_shapes(infos, sizes or {})
    draw = Draw(high, ranges, values)
    draw.check([info.name for info in infos])
    made: dict[str, Any] = {}
    for info in infos:
        shape = shapes[info.name]
        rng = np.random.default_rng([seed, zlib.crc32(info.name.encode())])
        if info.kind.endswith("sequence"):
            made[info.name] = [draw(rng, info, shape) for _ in range(_SEQUENCE)]
        else:
            made[info.name] = draw(rng, info, shape)
    return made


def input_shapes(infos: Sequence[TensorInfo], sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input.

    Args:
        infos: declared inputs.
        sizes: value for each named dimension, and ``{"input.axis": n}`` for nameless ones; others become 2.

    Raises:
        ArgumentError: no input has a dimension that ``sizes`` names.
    """
    used: set[str] = set()
    made = {i.name: tuple(_size(i, axis, sizes, used) for axis in range(len(i.shape))) for i in infos}
    unused = set(sizes) - used
    if unused:
        names = sorted({d for info in infos for d in info.shape if isinstance(d, str)})
        raise ArgumentError(
            f"no input has a dimension {', '.join(sorted(unused))}",
            expected=f"one of {', '.join(names)}" if names else "no sizes: every dimension is a number",
            hint="INPUT.AXIS=NUMBER sets a nameless dimension, e.g. x.0=4",
        )
    return made


def _size(info: TensorInfo, axis: int, known: Mapping[str, int], used: set[str]) -> int:
    dim = info.shape[axis]
    if isinstance(dim, int):
        return dim
    for key in (f"{info.name}.{axis}", dim):
        if key is not None and key in known:
            used.add(key)
            return known[key]
    return _DEFAULT_SIZE
