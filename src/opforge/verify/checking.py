"""One command that says whether an operator, or a model, can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.errors import ArgumentError, OpforgeError
from opforge.schema import Operator
from opforge.verify import _derivative_checks, _operator_checks, _stability_checks, _torch_checks
from opforge.verify._inputs import model_path
from opforge.verify._rows import Row
from opforge.verify.hosts import Host
from opforge.verify.hosts import hosts as hosts_named

if TYPE_CHECKING:
    import onnx

__all__ = ["CheckReport", "check"]

LEVELS = ("quick", "default")


@dataclass
class CheckReport:
    """The result of :func:`check`; truthy when every row passed."""

    subject: str
    level: str
    seed: int
    rows: list[Row] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether there are rows and all passed."""
        return bool(self.rows) and all(row.passed for row in self.rows)

    def __bool__(self) -> bool:
        return self.passed

    @property
    def failures(self) -> list[Row]:
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
            "rows": [row._asdict() for row in self.rows],
        }


def check(
    subject: Operator | str | Path | onnx.ModelProto,
    level: str = "default",
    *,
    seed: int = 0,
    hosts: Sequence[str] | None = None,
) -> CheckReport:
    """Check an operator or an ONNX model.

    An operator is checked for its schema, its values against the float64 reference in every host and dtype it
    declares, layouts (transposed, sliced, expanded), boundary values (NaN, infinities, zeros, denormals, large
    magnitudes; the pattern of the reference is what is right), first and second derivatives against finite
    differences, equal bits over repetitions, loop chunks and threads, compiled formulas against interpreted ones,
    and PyTorch's fake kernels against real ones. A model is held against the registry, and opforge's results
    against ONNX Runtime's (ONNX's own evaluator where a node has no body).

    Args:
        subject: an operator, an ONNX model, or the path of one.
        level: "quick" (NumPy only, dense inputs) or "default".
        seed: of drawn inputs and directions.
        hosts: where an operator is checked, such as ("numpy", "torch"), instead of the level's: NumPy, and at the
            default level every installed framework.

    Raises:
        ArgumentError: an unknown level or host, a host that is not installed, hosts for a model, or a file that is
            no model.
    """
    if level not in LEVELS:
        raise ArgumentError("there is no such level", where="check", expected=" or ".join(LEVELS), got=repr(level))
    if isinstance(subject, Operator):
        report = CheckReport(subject.qualified_name, level, seed)
        used = hosts_named(["numpy"] if hosts is None and level == "quick" else hosts)
        if hosts is None:  # what a host cannot have is no fault of the operator
            reasons = {host.name: host.refuses(subject) for host in used}
            report.rows += [Row("host", "left out", name, "", True, why) for name, why in reasons.items() if why]
            used = [host for host in used if not reasons[host.name]]
        for name, rows in _operator_parts(subject, level, seed, used):
            _collect(report, name, rows)
        return report
    if hosts is not None:
        raise ArgumentError("hosts are for operators; a model is checked in engines", where="check", got=list(hosts))
    from opforge.onnx._read import read_model

    with model_path(subject) as path:
        model = read_model(path)
        report = CheckReport(str(subject) if isinstance(subject, str | Path) else model.graph.name, level, seed)
        _collect(report, "model", lambda: _model(path, model, seed))
    return report


_Parts = Iterator[tuple[str, Callable[[], Iterator[Row]]]]


def _operator_parts(operator: Operator, level: str, seed: int, used: list[Host]) -> _Parts:
    yield "schema", lambda: _operator_checks.schema(operator)
    for host in used:
        yield "values", partial(_operator_checks.values, operator, host, level, seed)
        yield "boundary", partial(_operator_checks.boundary, operator, host, seed)
        if operator.gradient is not None:
            yield "gradient", partial(_derivative_checks.gradient, operator, host, seed)
    if operator.gradient is not None:
        yield "second derivative", partial(_derivative_checks.second_derivative, operator, seed)
    yield "determinism", partial(_stability_checks.determinism, operator, seed)
    if level != "quick":
        yield "interpreter", partial(_stability_checks.interpreter, operator, seed)
    if level != "quick" and any(host.name == "torch" for host in used):
        yield "fake kernel", partial(_torch_checks.fake_kernel, operator, seed)


def _collect(report: CheckReport, name: str, rows: Callable[[], Iterator[Row]]) -> None:
    """Add the rows of one part; an error that it raises is a failed row, so that the others still run.

    A row that repeats what an earlier part said (no cases, no compiler) is not added again.
    """
    try:
        for row in rows():
            report.rows.append(row)
    except OpforgeError as problem:
        detail = str(problem)
        if all(row.detail != detail for row in report.rows):
            report.rows.append(Row(name, "", "", "", False, detail))


def _contradiction(model: onnx.ModelProto) -> str:
    """What the inference of shapes objects to; nothing where the model is consistent."""
    from opforge.onnx import infer_shapes

    try:
        infer_shapes(model)
    except OpforgeError as problem:
        return str(problem)
    return ""


def _model(path: Path, model: onnx.ModelProto, seed: int) -> Iterator[Row]:
    from opforge.onnx import check_model
    from opforge.verify._engines import default_engines
    from opforge.verify.comparison import compare

    problems = check_model(model)
    for problem in problems:
        yield Row("registry", "", "", "", False, str(problem))
    if problems:
        return
    yield Row("registry", "", "", "", True)
    contradiction = _contradiction(model)
    if contradiction:
        yield Row("shapes", "", "", "", False, contradiction)
        return
    try:
        result = compare(path, engines=default_engines(path), seed=seed)
    except ArgumentError as problem:
        # Only the author knows which values such a model takes (indices, sizes); that is no fault of it.
        hint = "not compared, the model does not take random inputs; opforge compare --npz FILE compares given ones"
        yield Row("parity", "random inputs", "", "", True, f"{hint}: {problem}")
        return
    for row in result.rows:
        detail = "" if row.passed else f"against {result.reference}: {row.detail}"
        yield Row("parity", row.output, row.engine, "", row.passed, detail)
