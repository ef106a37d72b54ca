"""``opforge tune`` for the operators that have a choice to make, in a cache of its own; prints what was found."""

from __future__ import annotations

import sys

from opforge.build import device_library
from opforge.cuda.device import Session
from opforge.errors import ToolchainError
from opforge.verify.tuning import tune_operator
from tools.device_check.clock import rehearsing
from tools.device_check.operators import operators

_NAMES = ("CustomGELU", "SparseMatMul")


def main() -> int:
    """Tune, and store nothing: the figures of the benchmark are those of kernels as they are."""
    count = 0
    with Session() as session:
        for operator in operators():
            if operator.name not in _NAMES:
                continue
            try:
                library = device_library(operator, "cuda")
            except ToolchainError as error:
                print(f"left out {operator.name}: {str(error).splitlines()[0]}")
                continue
            largest = 1 << 10 if rehearsing() else 1 << 27
            for row in tune_operator(operator, session, library, dtypes=("f32",), largest=largest, seconds=20):
                best = min(row.tried, key=lambda text: row.tried[text])
                times = f"{row.seconds * 1e6:.2f} us, as it is {row.untuned * 1e6:.2f}"
                print(row.operator, row.dtypes, row.shape, times, best, row.refused, flush=True)
                count += 1
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main())
