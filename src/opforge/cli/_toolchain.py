"""``opforge check MODEL --target NAME``: a model against what a vendor's toolchain publishes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from opforge.cli._models import require_model
from opforge.cli._output import emit, table
from opforge.errors import ArgumentError

if TYPE_CHECKING:
    from opforge.targets import TargetReport

__all__ = ["check_target"]

_SHOWN = 8


def check_target(target: str, toolchain: str, as_json: bool) -> int:
    """Print the report; the exit code."""
    from opforge.onnx._read import read_model
    from opforge.targets import target_report

    path = Path(target)
    if path.suffix != ".onnx":
        raise ArgumentError("--target is for ONNX models", where=target, expected="MODEL.onnx")
    require_model(path)
    report = target_report(read_model(path), toolchain)

    def text() -> None:
        _print(report)

    emit({"model": target, **report.as_dict()}, as_json, text)
    return 0 if report.passed else 1


def _print(report: TargetReport) -> None:
    row = report.toolchain
    if not report.opset_fits:
        oldest, newest = row.opsets
        click.echo(f"FAILED opset {report.opset}: {row.title} reads {oldest} to {newest}; export with --opset {newest}")
    bad = [node for node in report.nodes if node.state != "kernel"]
    if bad:
        table(None, ("node", "operator", "reason", "to do"), [(n.node, n.operator, n.reason, n.to_do) for n in bad])
    if len(report.parts) > 1 or any(not part.device for part in report.parts):
        click.echo("\nparts of the simplified model, bodies inlined:")
        rows = [
            (k + 1, row.device if part.device else "host", len(part.nodes), _names(part.nodes), _names(part.inputs),
             _names(part.outputs))
            for k, part in enumerate(report.parts)
        ]  # fmt: skip
        table(None, ("part", "on", "nodes", "names", "reads", "gives"), rows)
    none = sum(node.state == "none" for node in report.nodes)
    said = f"{len(report.nodes)} nodes: {len(report.nodes) - len(bad)} listed, {len(bad) - none} rewritten, {none} not"
    click.echo(f"\n{said}, against the list of {row.title}, which was not run: {row.source}")
    click.echo(f"note: {row.note}")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
