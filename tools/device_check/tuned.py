"""``opforge tune`` for operators that have a choice to make, NVIDIA's libraries among them: every choice is a row."""

from __future__ import annotations

import sys

from opforge.build import device_library
from opforge.cuda.device import Session
from opforge.errors import ToolchainError
from opforge.schema import Operator
from opforge.verify.tuning import Tuned, tune_operator
from tools.device_check.benchmark import OURS, Report
from tools.device_check.clock import rehearsing
from tools.device_check.operators import operators

_NAMES = ("CustomGELU", "SparseMatMul", "SparseMatMulGradDense", "SparseMatMulGradValues")
_DTYPES = ("f32", "f16")


def main() -> int:
    """Tune, and store nothing: the figures of the benchmark are those of kernels as they are."""
    count = 0
    report = Report("tune")
    with Session() as session:
        for operator in _operators():
            try:
                library = device_library(operator, "cuda")
            except ToolchainError as error:
                print(f"left out {operator.name}: {str(error).splitlines()[0]}")
                continue
            largest = 1 << 10 if rehearsing() else 1 << 27
            for row in tune_operator(operator, session, library, dtypes=_DTYPES, largest=largest, seconds=12):
                _written(report, operator, row)
                count += 1
    return 0 if count else 1


def _operators() -> list[Operator]:
    found = [operator for operator in operators() if operator.name in _NAMES]
    if not rehearsing():
        from examples.tiled_matmul.op import tiled_matmul

        found.append(tiled_matmul)
    return found


def _written(report: Report, operator: Operator, row: Tuned) -> None:
    case = f"{operator.name} {','.join(row.dtypes)} {row.shape}"
    for text, seconds in row.tried.items():
        who = OURS if text == "as it is" else text
        report.row(case, who, seconds=seconds, low=seconds, high=seconds, chosen=text == row.text)
    for text, why in row.refused.items():
        report.row(case, text, left_out=why)


if __name__ == "__main__":
    sys.exit(main())
