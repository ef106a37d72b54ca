"""``opforge check``: can an operator or a model be trusted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opforge.cli._models import require_model
from opforge.cli._output import emit, json_option, progress, table
from opforge.cli._strangers import check_stranger, stranger_job
from opforge.cli._targets import author_code, load_operators, load_packages, parse_seconds
from opforge.cli._toolchain import check_target
from opforge.errors import ArgumentError

if TYPE_CHECKING:
    from opforge.schema import Operator
    from opforge.verify import CheckReport
    from opforge.verify._rows import Row

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge check my_gate                    every operator of a folder, package or .py file
  opforge check my_gate:MyGate             one of them
  opforge check my_gate --host numpy --host jax
  opforge check model.onnx --package my_gate
  opforge check model.bin --model model.onnx
  opforge check model.onnx --target cann        what Huawei's ATC would find no kernel for
  opforge check my_gate --sanitize address --sanitize undefined
  opforge check my_gate --device cuda-emulated --sanitize thread
  opforge check ops.py:Hardtanh --reference ops.py:reference --cases ops.py:CASES
"""
_SHOWN = 12


@click.command(
    "check", short_help="Values, gradients, boundary inputs of an operator; soundness of a model.", epilog=_EPILOG
)
@click.argument("target")
@click.option("--level", type=click.Choice(["quick", "default", "deep"]), default="default", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Seed of the drawn inputs.")
@click.option(
    "--host", "hosts", multiple=True, help="numpy, torch, tensorflow or jax; repeatable. [default: every installed]"
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda-emulated"]),
    default="cpu",
    show_default=True,
    help="cuda-emulated: the CUDA kernels, run on the CPU.",
)
@click.option("--property", "properties", is_flag=True, help="Random calls, shrunk to the smallest that fails.")
@click.option(
    "--sanitize",
    multiple=True,
    type=click.Choice(["address", "undefined", "thread"]),
    help="Build the kernels again with a sanitizer and name the lines at fault; repeatable.",
)
@click.option(
    "--model",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The ONNX model that a .bin is held against.",
)
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that a model uses.")
@click.option("--reference", help="module.py:function over float64 arrays; TARGET is then a function of others.")
@click.option("--cases", help="module.py:NAME, a list of tuples of arrays, for --reference.")
@click.option(
    "--library",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What registers the operator of others: a PyTorch extension, or custom operators of ONNX Runtime.",
)
@click.option("--dtype", "dtypes", multiple=True, help="Floating dtypes for --reference. [default: f32, f64]")
@click.option(
    "--isolate/--in-process",
    default=True,
    show_default=True,
    help="Check kernels in a process of their own, so that one that crashes or hangs is a finding.",
)
@click.option(
    "--patience", default="10m", show_default=True, help="Time without a word from that process that is a hang."
)
@click.option(
    "--target",
    "toolchain",
    help="cann or vitis-ai: only which nodes of an .onnx it lists no kernel for, and where to cut the model.",
)
@click.option("--all", "everything", is_flag=True, help="Print every check, passed ones too.")
@json_option
def command(
    target: str,
    level: str,
    seed: int,
    hosts: tuple[str, ...],
    device: str,
    properties: bool,
    sanitize: tuple[str, ...],
    model: Path | None,
    packages: tuple[str, ...],
    reference: str | None,
    cases: str | None,
    library: Path | None,
    dtypes: tuple[str, ...],
    isolate: bool,
    patience: str,
    toolchain: str | None,
    everything: bool,
    as_json: bool,
) -> int:
    """Check TARGET: an operator package, folder, .py file, `PACKAGE:Operator`, an .onnx model or a .bin.

    Operators: schema, values against the float64 reference in every dtype, framework and engine, drawn shapes, other
    memory layouts, boundary inputs (NaN, infinities, denormals), first and second derivatives against finite
    differences, equal results on every run, memory. Models: domains, imports, nodes against the registered operators,
    opforge against ONNX Runtime. With --reference: a function of PyTorch tensors that opforge did not make
    (`module.py:Function`, `torch.ops.space.name`), or `domain::Name` in ONNX Runtime. Exit code 1 when a check fails.
    --level quick checks in NumPy only, unless hosts are named.
    """
    from opforge.build.flags import default_profile
    from opforge.build.jit import jit_mode
    from opforge.schema import Operator
    from opforge.verify import CheckReport, check
    from opforge.verify._kernels import may_crash
    from opforge.verify.apart import CheckProcess
    from opforge.verify.checking import check_apart, subject_name

    if device != "cpu":
        if hosts:
            raise ArgumentError("--host is for kernels of the CPU", where=target, hint=f"leave out --device {device}")
        hosts = (device,)

    # What is wrong in the environment is wrong use, not an operator that fails.
    jit_mode()
    default_profile()
    load_packages(packages)
    if toolchain is not None:
        return check_target(target, toolchain, as_json)
    limit = parse_seconds(patience, "--patience")
    reports = []
    if reference is not None:
        job = stranger_job(target, reference, cases, library, dtypes)
        reports.append(CheckReport(target, level, seed))
        with progress(f"checking {target}", as_json), author_code("the check cannot run", target):
            if isolate:
                with CheckProcess(limit) as process:
                    process.check(job, reports[-1])
            else:
                check_stranger(reports[-1], **job.arguments)
    else:
        subjects = _subjects(target)
        if sanitize and isinstance(subjects[0], Path):
            raise ArgumentError("--sanitize is for operators", where=target)
        if model is not None and not (isinstance(subjects[0], Path) and subjects[0].suffix == ".bin"):
            raise ArgumentError("--model is what a .bin is held against", where=target)
        options: dict[str, Any] = {"hosts": hosts or None, "properties": properties, "sanitize": sanitize}
        # Operators of one package share a process, so that frameworks are imported once.
        apart = isolate and any(isinstance(one, Operator) and may_crash(one) for one in subjects)
        with CheckProcess(limit) as process:
            for subject in subjects:
                name = subject.name if isinstance(subject, Path) else subject_name(subject)
                # A kernel's reference and cases are the author's code.
                with progress(f"checking {name}", as_json), author_code("the check cannot run", target):
                    if isinstance(subject, Operator) and apart:
                        reports.append(CheckReport(name, level, seed))
                        check_apart(process, subject, reports[-1], options)
                    else:
                        reports.append(
                            check(subject, level, seed=seed, model=model, isolate=isolate, patience=limit, **options)
                        )
                if not as_json:  # each as soon as it is known: a package takes minutes
                    _print(reports[-1], everything)
    passed = all(report.passed for report in reports)

    def text() -> None:
        if reference is not None:
            _print(reports[0], everything)
        if len(reports) > 1:
            bad = sum(not report.passed for report in reports)
            click.echo(f"{bad} of {len(reports)} operators FAILED" if bad else f"all {len(reports)} operators passed")

    emit({"passed": passed, "reports": [report.as_dict() for report in reports]}, as_json, text)
    return 0 if passed else 1


def _subjects(target: str) -> list[Path] | list[Operator]:
    path = Path(target)
    if path.suffix in (".onnx", ".bin"):
        require_model(path)
        return [path]
    return load_operators(target)


def _print(report: CheckReport, everything: bool) -> None:
    heads = ("check", "case", "host", "dtype", "verdict")
    rows = report.rows if everything else report.failures
    if everything and rows:
        table(None, heads, [(r.check, r.case, r.host, r.dtype, "ok" if r.passed else "FAILED") for r in rows])
    # One cause, such as a kernel that does not compile, fails many checks with the same words: they are said once.
    causes: dict[str, list[Row]] = {}
    for row in report.failures:
        causes.setdefault(row.detail, []).append(row)
    for detail, alike in list(causes.items())[:_SHOWN]:
        place = ", ".join(part for part in (alike[0].case, alike[0].host, alike[0].dtype) if part)
        others = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        click.echo(f"FAILED {alike[0].check}{f' ({place})' if place else ''}{others}: {detail}")
    for row in report.rows:
        if row.passed and row.detail:
            click.echo(f"note, {row.check}: {row.detail}")
    kinds = Counter(row.check for alike in list(causes.values())[_SHOWN:] for row in alike)
    if kinds:
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        click.echo(f"and {kinds.total()} more: {listed} (--all or --json shows each)")
    if report.passed:
        kinds = Counter(row.check for row in report.rows)
        hosts = dict.fromkeys(row.host for row in report.rows if row.host and row.check != "host")  # not left out
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        click.echo(f"{report.summary()} ({listed})" + (f" in {', '.join(hosts)}" if hosts else ""))
    else:
        click.echo(report.summary())
