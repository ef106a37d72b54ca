"""``opforge monitor``: a deployed model over time; what its log says; a dashboard."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opforge._files import whole_file
from opforge.cli._models import require_model
from opforge.cli._output import count_text, emit, json_option, json_text, path_text, progress, table
from opforge.cli._targets import load_packages, parse_sizes
from opforge.errors import ArgumentError, OpforgeError

if TYPE_CHECKING:
    from opforge.monitor import LogReport, Monitor

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge monitor model.bin --seconds 60 --log model.jsonl --port 9464
  opforge monitor model.jsonl
  opforge monitor model.jsonl --against deployed.jsonl
  opforge monitor model.jsonl --against profile.json     what `opforge profile model.bin --json` printed
  opforge monitor --dashboard grafana.json

\b
Exit codes: 0 nothing stands out; 1 errors, growing memory, drifting latency or a slower operator; 2 wrong use.
"""
_FILE = click.Path(dir_okay=False, path_type=Path)
_WINDOWS = 32
_MOST_ERRORS = 100
_MARKS = {True: "ok", False: "FAILED", None: "not clear"}


@click.command("monitor", short_help="A deployed model over time: metrics, logs, what became slower.", epilog=_EPILOG)
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path))
@click.option("--against", type=_FILE, help="JSON of `opforge profile`, or an earlier log: what operators took then.")
@click.option("--slower", default=1.25, show_default=True, type=click.FloatRange(1), help="Ratio that is a fault.")
@click.option("--drift", default=0.1, show_default=True, type=click.FloatRange(0), help="Growth of the median latency.")
@click.option("--leak-limit", default=1.0, show_default=True, type=click.FloatRange(0), help="MiB of growth allowed.")
@click.option("--dashboard", type=_FILE, help="Write a dashboard for Grafana (.json).")
@click.option("--log", type=_FILE, help="Append the windows of MODEL.bin (.jsonl).")
@click.option(
    "--seconds",
    default=10.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="How long MODEL.bin runs.",
)
@click.option(
    "--interval", type=click.FloatRange(0, min_open=True), help=f"Seconds of a window. [default: {_WINDOWS} windows]"
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Runs a second. [default: one after the other]")
@click.option("--every", default=64, show_default=True, type=click.IntRange(1), help="Time operators of one run in N.")
@click.option("--port", type=click.IntRange(0, 65535), help="Serve /metrics meanwhile; 0 = a free port.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of --port.")
@click.option("--npz", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="All inputs in one .npz.")
@click.option("--size", "sizes", multiple=True, help="NAME=NUMBER: a named dimension of random inputs.")
@click.option("--seed", default=0, show_default=True, help="Seed of random inputs.")
@click.option("--threads", type=click.IntRange(1), help="Threads of a run. [default: all]")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that MODEL uses.")
@json_option
def command(
    sources: tuple[Path, ...],
    against: Path | None,
    slower: float,
    drift: float,
    leak_limit: float,
    dashboard: Path | None,
    packages: tuple[str, ...],
    as_json: bool,
    **live: Any,  # noqa: ANN401 - options of a live model, typed by click
) -> int:
    """Run MODEL.bin and watch it, or say what logs (.jsonl) of watched models tell.

    A program that serves a model watches it with `opforge.monitor.watch(session, log=...)`; the log is the same. Each
    log is held against --against, or its last third against its first.
    """
    from opforge.monitor import Limits, judge, logs_of, read_log

    models = [path for path in sources if path.suffix == ".bin"]
    logs = [path for path in sources if path.suffix != ".bin"]
    if len(models) > 1 or (models and logs) or not (sources or dashboard):
        raise ArgumentError(
            "give one model, or logs", where="monitor", expected="MODEL.bin, LOG.jsonl ... or --dashboard FILE",
            got=", ".join(map(str, sources)) or None,
        )  # fmt: skip
    if dashboard is not None:
        _write_dashboard(dashboard)
    baseline = None if against is None else _baseline(against)
    load_packages(packages)
    found = logs_of(_live(models[0], as_json, **live)) if models else read_log(logs)
    limits = Limits(slower, drift, int(leak_limit * (1 << 20)))
    reports = [judge(log, baseline, limits) for log in found]
    if sources and not reports:
        raise ArgumentError("the logs are empty", where=", ".join(map(str, logs)), expected="a window at least")
    passed = all(report.passed for report in reports)

    def text() -> None:
        for report in reports:
            _print(report)
        if dashboard is not None:
            click.echo(f"wrote {path_text(dashboard.absolute())}; Grafana: Dashboards, New, Import")

    emit({"monitor": [report.as_dict() for report in reports], "passed": passed}, as_json, text)
    return 0 if passed else 1


def _write_dashboard(path: Path) -> None:
    from opforge.monitor import dashboard

    if path.suffix != ".json":
        raise ArgumentError("a dashboard is JSON", where="--dashboard", expected="NAME.json", got=str(path))
    with whole_file(path) as temporary:
        temporary.write_text(json_text(dashboard()) + "\n", encoding="utf-8")


def _baseline(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".jsonl":
        from opforge.monitor import baseline, read_log

        return baseline(read_log([path]), path.name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, FileNotFoundError):
        content = None
    if not isinstance(content, dict) or not {"model", "nodes", "inputs", "threads"} <= content.keys():
        raise ArgumentError(
            "no profile",
            where=str(path),
            expected="what `opforge profile MODEL.bin --json` prints, or a log (.jsonl)",
        )
    return content


def _live(
    model: Path,
    as_json: bool,
    *,
    log: Path | None,
    seconds: float,
    interval: float | None,
    rate: float | None,
    every: int,
    port: int | None,
    host: str,
    npz: Path | None,
    sizes: Sequence[str],
    seed: int,
    threads: int | None,
) -> list[dict[str, Any]]:
    """Run a model for a while; the lines of its log."""
    from opforge.bin.libraries import libraries_of
    from opforge.bin.session import Session
    from opforge.monitor import serve, watch
    from opforge.verify import find_engine, gather_values, load_npz, random_inputs

    require_model(model)
    infos = find_engine("opforge").load(model, threads=threads).inputs
    inputs = gather_values(load_npz(npz), infos) if npz else random_inputs(infos, seed=seed, sizes=parse_sizes(sizes))
    session = Session(model, threads=threads, libraries=libraries_of(model, search=True))
    session.run(inputs)  # what is wrong with the inputs is said here; later errors are counted
    lines: list[dict[str, Any]] = []
    with ExitStack() as stack:
        monitor = stack.enter_context(watch(session, log=log, interval=None, every=every))
        if port is not None:
            server = stack.enter_context(serve(monitor, port=port, host=host))
            click.echo(f"metrics: {server.url}", err=True)
        with progress(f"running {model.name} for {seconds:g} s; Ctrl-C ends it", as_json), _interruptible():
            for _ in _windows(monitor, inputs, seconds, interval or seconds / _WINDOWS, rate):
                lines.append(monitor.roll())
    return lines or [monitor.roll()]


def _windows(
    monitor: Monitor, inputs: Mapping[str, Any], seconds: float, interval: float, rate: float | None
) -> Iterator[None]:
    """Run until a window has ended, and yield."""
    began = time.monotonic()
    roll, end = began + interval, began + seconds
    calls = errors = 0
    while errors < _MOST_ERRORS:
        try:
            monitor.session.run(inputs)
        except OpforgeError:
            errors += 1
        calls += 1
        if rate is not None:
            time.sleep(max(0.0, min(began + calls / rate, end) - time.monotonic()))
        now = time.monotonic()
        if now >= end:
            break
        if now >= roll:
            yield
            roll += interval
    yield


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the block; what was seen until then is reported."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("ended early", err=True)


def _print(report: LogReport) -> None:
    log, figures = report.log, report.as_dict()
    click.echo(
        f"{log.model}, process {log.process}: {count_text(log.runs, 'run')} in {figures['seconds']:.1f} s, "
        f"{count_text(len(log.windows), 'window')}, operators timed in {count_text(figures['sampled_runs'], 'run')}"
    )
    for verdict in report.verdicts:
        click.echo(f"{_MARKS[verdict.passed]} {verdict.check}: {verdict.words}; {verdict.detail}")
    rows = [
        (row.operator, f"{row.before_ns / 1e3:.1f}", f"{row.now_ns / 1e3:.1f}", f"{row.ratio:.2f}", f"{row.share:.1%}")
        for row in report.operators
    ]
    if rows:
        click.echo()
        table(f"a run, against {report.before}", ("operator", "us before", "us now", "ratio", "share"), rows)
