"""A case of the corpus, and how a list of them is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import opforge as of
from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.encode import STRING, SUB_BYTE

Array = np.ndarray[Any, Any]
_NO_FILES = [NUMPY_DTYPES[number] for number in (STRING, *SUB_BYTE)]


@dataclass(frozen=True)
class Case:
    """A model with one set of inputs.

    Attributes:
        name: unique in the corpus; its first word is the part.
        save: writes the .bin; raises an error of opforge when the model is not supported.
        feeds: the inputs by name; of no use where a sequence is among them.
    """

    name: str
    save: Callable[[Path], object]
    feeds: Mapping[str, Any]


def plain(session: of.Session) -> bool:
    """Whether inputs and outputs are tensors of numbers that take whole bytes, as .npy files need."""
    return all(v.kind == "tensor" and v.dtype not in _NO_FILES for v in (*session.inputs, *session.outputs))


def random(session: of.Session, feeds: Mapping[str, Any]) -> bool:
    """Whether two runs differ, as those of a program that draws numbers do."""
    one, other = ({n: a.tobytes() for n, a in session.run(dict(feeds)).items()} for _ in range(2))
    return one != other


def write_corpus(cases: Iterable[Case], folder: Path) -> tuple[Path, list[str]]:
    """Compile the cases below a folder and write its list.

    Returns:
        The list, and the names of cases that the compiler cannot take.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines, left_out = [], []
    for number, case in enumerate(cases):
        place = folder / f"{number:04d}"
        place.mkdir(exist_ok=True)
        model = place / "model.bin"
        try:
            case.save(model)
            session = of.Session(model, threads=1)
        except (of.errors.OpforgeError, NotImplementedError):
            left_out.append(case.name)
            continue
        if not plain(session) or random(session, case.feeds):  # run on small inputs, nothing to compare
            lines.append(f"{case.name}\t{model}")
            continue
        files = []
        for k, value in enumerate(session.inputs):
            np.save(place / f"input{k}.npy", np.asarray(case.feeds[value.name], order="C"))
            files.append(place / f"input{k}.npy")
        files += [place / f"output{k}.npy" for k in range(len(session.outputs))]
        lines.append("\t".join([case.name, str(model), str(len(session.inputs)), *map(str, files)]))
    path = folder / "list.txt"
    path.write_text("\n".join(lines) + "\n")
    (folder / "left_out.json").write_text(json.dumps(left_out, indent=0) + "\n")
    return path, left_out
