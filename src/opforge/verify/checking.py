"""One command that says whether an operator, or a model, can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opforge.errors import ArgumentError, OpforgeError
from opforge.schema import Operator
from opforge.verify import _operator_checks as checks
from opforge.verify.hosts import hosts

__all__ = ["CheckReport", "CheckRow", "check"]

LEVELS = ("quick", "default")


@dataclass(frozen=True)
class CheckRow:
    """One check of one case."""

    check: str
    case: str
    host: str
    dtype: str
    passed: bool
    detail: str = ""


@dataclass
class CheckReport:
    """The result of :func:`check`; truthy when every row passed."""

    subject: str
    level: str
    seed: int
    rows: list[CheckRow] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether there are rows and all passed."""
        return bool(self.rows) and all(row.passed for row in self.rows)

    def __bool__(self) -> bool:
        return self.passed

    @property
    def failures(self) -> list[CheckRow]:
        """The rows that failed."""
        return [row for row in self.rows if not row.passed]

    def summary(self) -> str:
        """Return one line for people."""
        bad = len(self.failures)
        verdict = (
            f"{bad} of {len(self.rows)} checks FAILED (seed {self.seed})" if bad else f"{len(self.rows)} checks passed"
        )
        return f"{self.subject}: {verdict if self.rows else 'nothing was checked'}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "subject": self.subject,
            "level": self.level,
            "seed": self.seed,
            "passed": self.passed,
            "rows": [asdict(row) for row in self.rows],
        }


def check(subject: Operator | str | Path, level: str = "default", *, seed: int = 0) -> CheckReport:
    """Check an operator or an ONNX model.

    An operator is checked for its schema, its values against the float64 reference in every host and dtype it
    declares, layouts (transposed, sliced), boundary values (NaN, infinities, zeros, denormals, large magnitudes; the
    pattern of the reference is what is right), and first and second derivatives against finite differences. A
    model is held against the registry, and opforge's results against ONNX Runtime's.

    Args:
        subject: an operator, or the path of an ONNX model.
        level: "quick" (NumPy only, first case of each kind) or "default".
        seed: of drawn inputs and directions.

    Raises:
        ArgumentError: an unknown level.
    """
    if level not in LEVELS:
        raise ArgumentError("there is no such level", where="check", expected=" or ".join(LEVELS), got=repr(level))
    if isinstance(subject, Operator):
        report = CheckReport(subject.qualified_name, level, seed)
        for name, rows in _operator_parts(subject, level, seed):
            _collect(report, name, rows)
        return report
    report = CheckReport(str(subject), level, seed)
    _collect(report, "model", lambda: _model(Path(subject), seed))
    return report


def _operator_parts(
    operator: Operator, level: str, seed: int
) -> Iterator[tuple[str, Callable[[], Iterator[tuple[Any, ...]]]]]:
    used = hosts()[:1] if level == "quick" else hosts()
    yield "schema", lambda: checks.schema(operator)
    for host in used:
        yield f"values in {host.name}", lambda host=host: checks.values(operator, host, level, seed)  # type: ignore[misc]
        yield f"boundary in {host.name}", lambda host=host: checks.boundary(operator, host)  # type: ignore[misc]
        if operator.gradient is not None:
            yield f"gradient in {host.name}", lambda host=host: checks.gradient(operator, host, seed)  # type: ignore[misc]
    if operator.gradient is not None:
        yield "second derivative", lambda: checks.second_derivative(operator, seed)


def _collect(report: CheckReport, name: str, rows: Callable[[], Iterator[tuple[Any, ...]]]) -> None:
    """Add the rows of one part; an error that it raises is a failed row, so that the others still run."""
    try:
        report.rows += [CheckRow(*row) for row in rows()]
    except OpforgeError as problem:
        report.rows.append(CheckRow(name, "", "", "", False, str(problem)))


def _model(path: Path, seed: int) -> Iterator[tuple[Any, ...]]:
    import onnx

    from opforge.onnx import check_model
    from opforge.verify.comparison import compare

    problems = check_model(onnx.load(str(path)))
    yield "registry", "", "", "", not problems, "; ".join(map(str, problems))
    if not problems:
        result = compare(path, seed=seed)
        for row in result.rows:
            d = row.difference
            yield (
                "parity",
                row.output,
                f"{row.engine} and {result.reference}",
                "",
                d.passed,
                f"max |error| {d.max_abs:.2e}",
            )
