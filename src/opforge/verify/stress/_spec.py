"""What a stress run is asked for, in a form that travels to the process that does the work."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path

from opforge.errors import ArgumentError

__all__ = ["FLIGHT", "Spec", "sizes_of"]

FLIGHT = struct.Struct("qq")
"""Of each caller, in the file that the two processes share: the case that it is in, or -1, and its finished calls."""

_MOST_SHAPES = 64


@dataclass(frozen=True)
class Spec:
    """One stress run.

    Attributes:
        target: a model's file, or an operator package, folder, file or ``PACKAGE:Operator``.
        engine: what runs a model.
        host: what computes operators: "numpy" or an installed framework.
        seconds: how long to run, without loading and the first run of each case. Where that is too short, every case
            runs once alone and once by each caller all the same.
        threads: callers at a time.
        run_threads: threads of one run; None leaves it to the engine.
        shapes: the sizes of each named dimension; every combination is a case.
        npz: files of inputs; they stand in for drawn ones.
        seed: of drawn inputs and of the order of calls.
        packages: operator packages that a model uses.
        compare: whether results are held against the first ones, bit for bit.
        allowed_growth: bytes of memory that are no leak.
        patience: seconds without a finished call after which the process counts as hung.
    """

    target: str
    engine: str = "opforge"
    host: str = "numpy"
    seconds: float = 10.0
    threads: int = 4
    run_threads: int | None = None
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    npz: Sequence[str] = ()
    seed: int = 0
    packages: Sequence[str] = ()
    compare: bool = True
    allowed_growth: int = 1 << 20
    patience: float = 60.0

    def __post_init__(self) -> None:
        """Check the number of cases."""
        sizes_of(self.shapes)

    @property
    def is_model(self) -> bool:
        """Whether the target is a model's file rather than operators."""
        path = Path(self.target)
        return path.is_file() and path.suffix != ".py"

    def to_json(self) -> str:
        """Return one line that ``from_json`` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Spec:
        """Read what ``to_json`` wrote."""
        return cls(**json.loads(text))


def sizes_of(shapes: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Return every combination of the sizes.

    Raises:
        ArgumentError: more combinations than are sensible.
    """
    combinations = [dict(zip(shapes, row, strict=True)) for row in product(*shapes.values())]
    if len(combinations) > _MOST_SHAPES:
        raise ArgumentError(
            "too many combinations of sizes",
            where="--shapes",
            expected=f"at most {_MOST_SHAPES}",
            got=len(combinations),
            hint="give fewer sizes for each dimension",
        )
    return combinations
