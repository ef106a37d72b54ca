"""One command that says whether an operator, or a model, can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.build import library_for
from opforge.errors import ArgumentError, BuildError, OpforgeError, ToolchainError
from opforge.schema import Operator, registry
from opforge.verify import (
    _contract_checks,
    _cuda_source_checks,
    _derivative_checks,
    _engine_checks,
    _gradient_checks,
    _model_checks,
    _operator_checks,
    _stability_checks,
    _torch_checks,
    _value_checks,
)
from opforge.verify._declared import UndeclaredError, stop_if_declaring
from opforge.verify._inputs import model_path
from opforge.verify._jobs import Job, model_job, operator_job
from opforge.verify._kernels import NO_KERNELS, kernels_of, may_crash
from opforge.verify._rows import Row
from opforge.verify.apart import PATIENCE, CheckProcess, check_forked
from opforge.verify.cuda_checks import emulated_sanitized
from opforge.verify.hosts import EMULATED, Host
from opforge.verify.hosts import hosts as hosts_named
from opforge.verify.levels import Level, level_named
from opforge.verify.properties import property_rows
from opforge.verify.sanitize import sanitized
from opforge.verify.sweep import unruly

if TYPE_CHECKING:
    import onnx

__all__ = ["CheckReport", "check", "collect"]

_EXAMPLES = 100
"""Random calls where the level has none of its own."""


@dataclass
class CheckReport:
    """The result of :func:`check`; truthy when every row passed."""

    subject: str
    level: str
    seed: int
    rows: list[Row] = field(default_factory=list)
    begins: Callable[[str], None] | None = field(default=None, repr=False, compare=False)
    """Is told the name of each part before it runs."""

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
    properties: bool = False,
    sanitize: Sequence[str] = (),
    model: Path | None = None,
    isolate: bool = True,
    patience: float | None = PATIENCE,
    report: CheckReport | None = None,
) -> CheckReport:
    """Check an operator, an ONNX model or a .bin.

    An operator is checked for its schema, its values against the float64 reference in every host and dtype it
    declares, layouts (transposed, sliced, expanded), boundary values (NaN, infinities, zeros, denormals, large
    magnitudes; the pattern of the reference is what is right), first and second derivatives against finite
    differences, equal bits over repetitions, loop chunks and threads, compiled formulas against interpreted ones,
    and PyTorch's fake kernels against real ones; then its library, ownership of memory, leaks, values of integers
    that lie outside of everything, and its node in every installed engine. An ONNX model is held against the
    registry, and opforge's results against ONNX Runtime's (ONNX's own evaluator where a node has no body). A .bin is
    verified byte by byte, and has to give equal bits on every run.

    Args:
        subject: an operator, an ONNX model, or the path of one or of a .bin.
        level: "quick" (NumPy only, dense inputs), "default" (every installed framework and engine) or "deep" (more
            shapes, compiled modes, property tests).
        seed: of drawn inputs and directions.
        hosts: where an operator is checked, such as ("numpy", "torch"), instead of the level's: NumPy, and at the
            default level every installed framework.
        properties: whether random calls are drawn at this level too; the deep one does.
        sanitize: of "address", "undefined", "thread": the operator's library is built again with these sanitizers;
            that of its CUDA kernels where "cuda-emulated" is among the hosts.
        model: the ONNX model that a .bin was compiled from, to compare with.
        isolate: whether a kernel operator, and a model that holds one, is checked in a process of its own, so that a
            kernel that crashes is a failed row of the check "process" and not the end of this one. That process
            declares the operators again.
        patience: seconds without a word from that process after which a kernel is taken to hang, which is a failed row
            too; None = as long as it takes.
        report: the report to fill, instead of a new one.

    Raises:
        ArgumentError: an unknown level or host, a host that is not installed, hosts for a model, or a file that is
            no model.
    """
    stop_if_declaring()
    row = level_named(level)
    if isinstance(subject, Operator):
        report = CheckReport(subject_name(subject), level, seed) if report is None else report
        if isolate and may_crash(subject):
            options = {"hosts": hosts, "properties": properties, "sanitize": tuple(sanitize)}
            with CheckProcess(patience) as process:
                check_apart(process, subject, report, options)
            return report
        used = hosts_named(["numpy"] if hosts is None and not row.frameworks else hosts)
        # What a host cannot have is no fault of the operator; a framework that was asked for says it by itself.
        reasons = {host.name: host.refuses(subject) for host in used if hosts is None or host.name == EMULATED}
        if any(reasons.values()):
            for name, why in reasons.items():
                if why:
                    report.rows.append(Row("host", "left out", name, "", True, why))
            used = [host for host in used if not reasons.get(host.name)]
        if not _has_gradient_program(subject):  # the row of the schema says what is wrong with it
            collect(report, "schema", lambda: _operator_checks.schema(subject))
            return report
        if _cannot_be_built(subject):  # said once, not by every part
            collect(report, "schema", lambda: _operator_checks.schema(subject))
            collect(report, "streams", partial(_cuda_source_checks.streams, subject))
            collect(report, "library", partial(_contract_checks.library, subject))
            return report
        for name, rows in _operator_parts(subject, row, seed, used, engines=hosts is None and row.engines):
            collect(report, name, rows)
        if properties or row.examples:
            for host in used:
                examples = row.examples or _EXAMPLES
                collect(report, "property", partial(property_rows, subject, host, examples, seed))
        if sanitize:
            emulated = EMULATED in (hosts or ())
            rows_of = emulated_sanitized if emulated else sanitized
            if not emulated or not reasons[EMULATED]:
                collect(report, "sanitize", partial(rows_of, subject, sanitize, seed))
        return report
    if hosts is not None:
        raise ArgumentError("hosts are for operators; a model is checked in engines", where="check", got=list(hosts))
    if report is None:
        report = CheckReport(str(subject) if isinstance(subject, str | Path) else subject.graph.name, level, seed)
    with model_path(subject) as path:
        _check_model(path, report, row, model, isolate, patience)
    return report


def subject_name(operator: Operator) -> str:
    """Name an operator in a report: with its version where there are several."""
    several = len(registry.versions(operator.domain, operator.name)) > 1
    return operator.key if several else operator.qualified_name


def check_apart(process: CheckProcess, operator: Operator, report: CheckReport, options: Mapping[str, Any]) -> None:
    """Check an operator in another process; a crash is a row, and then the sanitizers find its line.

    An operator that no other process can declare is tried in a fork, and checked here when it lives.
    """
    sanitize = options["sanitize"]
    try:
        lives = process.check(operator_job(operator, options), report)
    except UndeclaredError as problem:
        trial = CheckReport(report.subject, "quick", report.seed)

        def fill(into: CheckReport) -> None:
            check(operator, "quick", seed=into.seed, hosts=["numpy"], isolate=False, report=into)

        if not check_forked(Job(operator.qualified_name, fill, hint=str(problem.hint)), trial):
            report.rows += trial.rows
            return
        note = f"tried by NumPy alone before it was checked in this process: {problem.what}, {problem.hint}"
        report.rows.append(Row("process", "", "", "", True, note))
        check(operator, report.level, seed=report.seed, isolate=False, report=report, **options)
        return
    if not lives and sanitize:
        collect(report, "sanitize", partial(sanitized, operator, sanitize, report.seed))


def _check_model(
    path: Path, report: CheckReport, level: Level, against: Path | None, isolate: bool, patience: float | None
) -> None:
    """Check a model; one that holds kernels of authors in another process."""
    from opforge.onnx._read import read_model

    kernels = kernels_of(path) if isolate else NO_KERNELS
    if kernels:
        try:
            with CheckProcess(patience) as process:
                process.check(model_job(path, report.subject, kernels, against), report)
            return
        except UndeclaredError as problem:
            note = f"checked in this process, which a kernel that crashes would end: {problem}"
            report.rows.append(Row("process", "", "", "", True, note))
    if path.suffix == ".bin":
        collect(report, "model", lambda: _model_checks.bin_rows(path, against, report.seed))
        return
    proto = read_model(path)
    collect(report, "model", lambda: _model_checks.onnx_rows(path, proto, level, report.seed))


def _has_gradient_program(operator: Operator) -> bool:
    """Whether the author's gradient, which is traced when it is first asked for, makes a program (or there is none)."""
    try:
        return operator.gradient is None or bool(operator.gradient)
    except OpforgeError:
        return False


def _cannot_be_built(operator: Operator) -> bool:
    """Whether the operator has no kernels because there is no compiler, or because it refuses their source."""
    try:
        library_for([operator])
    except (BuildError, ToolchainError):
        return True
    except OpforgeError:  # the parts say it
        return False
    return False


_Parts = Iterator[tuple[str, Callable[[], Iterator[Row]]]]


def _operator_parts(operator: Operator, level: Level, seed: int, used: list[Host], *, engines: bool) -> _Parts:
    yield "schema", lambda: _operator_checks.schema(operator)
    yield "streams", partial(_cuda_source_checks.streams, operator)
    for host in used:
        yield from _host_parts(operator, host, level, seed)
    if operator.gradient is not None:
        yield "second derivative", partial(_derivative_checks.second_derivative, operator, seed)
    yield "determinism", partial(_stability_checks.determinism, operator, seed, level.rounds)
    if level.name != "quick":
        yield "interpreter", partial(_stability_checks.interpreter, operator, seed)
    if level.name != "quick" and any(host.name == "torch" for host in used):
        yield "fake kernel", partial(_torch_checks.fake_kernel, operator, seed)
        yield "opcheck", partial(_torch_checks.opcheck_own, operator, seed)
        yield "autocast", partial(_torch_checks.autocast, operator, seed)
    if level.contracts:
        yield "library", partial(_contract_checks.library, operator)
        yield "ONNX node", partial(_contract_checks.node, operator, seed)
        if _value_checks.takes_integers(operator):
            yield "bad values", partial(_value_checks.bad_values, operator, seed)
    for engine in _engine_checks.usable_engines() if engines else []:
        yield "engine", partial(_engine_checks.in_engine, operator, engine, level.traced, seed)


def _host_parts(operator: Operator, host: Host, level: Level, seed: int) -> _Parts:
    yield "values", partial(_operator_checks.values, operator, host, level.layout_cases, seed)
    if host.name == "numpy" or not unruly(operator):  # what cannot be drawn is said once
        yield "drawn", partial(_operator_checks.drawn, operator, host, level.drawn, seed)
    yield "boundary", partial(_operator_checks.boundary, operator, host, seed)
    modes = [host.in_mode(mode) for mode in host.modes[1:] if mode in level.modes]
    for other in modes:
        yield "values", partial(_operator_checks.in_mode, operator, other, level.traced, seed)
    if operator.gradient is not None:
        yield "gradient", partial(_derivative_checks.gradient, operator, host, seed)
        yield "gradient shapes", partial(_gradient_checks.gradient_shapes, operator, host, seed)
        if level.layout_cases:
            yield "gradient layouts", partial(_gradient_checks.gradient_layouts, operator, host, seed)
        if host.second is not None and level.frameworks and _derivative_checks.twice_differentiable(operator):
            yield "second derivative", partial(_derivative_checks.second_in_host, operator, host, seed, 2)
        for other in modes:
            yield "gradient", partial(_derivative_checks.gradient, operator, other, seed, level.traced)
    if host.name != "numpy" and level.frameworks:
        yield "determinism", partial(_stability_checks.in_host, operator, host, seed, level.rounds)
    if level.contracts:
        yield "ownership", partial(_contract_checks.owned, operator, host, seed)
        yield "leaks", partial(_contract_checks.leaks, operator, host, seed, level.forwards)


def collect(report: CheckReport, name: str, rows: Callable[[], Iterator[Row]]) -> None:
    """Add the rows of one part; an error that it raises is a failed row, so that the others still run.

    A row that repeats what an earlier part said (no cases, no compiler) is not added again.
    """
    if report.begins is not None:
        report.begins(name)
    try:
        for row in rows():
            report.rows.append(row)
    except OpforgeError as problem:
        detail = str(problem)
        if all(row.detail != detail for row in report.rows):
            report.rows.append(Row(name, "", "", "", False, detail))
