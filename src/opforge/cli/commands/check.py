"""``opforge check``: can an operator or a model be trusted."""

from __future__ import annotations

from pathlib import Path

import click

from opforge.cli._output import emit, json_option, progress, table
from opforge.cli._targets import load_operators, load_packages

__all__ = ["command"]


@click.command("check")
@click.argument("target")
@click.option("--level", type=click.Choice(["quick", "default"]), default="default", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Seed of the drawn inputs.")
@click.option("--package", "packages", multiple=True, help="Package or folder with operators that a model uses.")
@click.option("--all", "everything", is_flag=True, help="Print passed checks too.")
@json_option
def command(target: str, level: str, seed: int, packages: tuple[str, ...], everything: bool, as_json: bool) -> int:
    """Check TARGET: an operator package, folder, `PACKAGE:Operator`, or an .onnx model.

    Operators: schema, values against float64 on every host and dtype, boundary inputs, first and second
    derivatives against finite differences. Models: domains, imports, nodes against the registry, and opforge
    against ONNX Runtime.
    """
    from opforge.verify import check

    load_packages(packages)
    subjects = [Path(target)] if target.endswith(".onnx") else [op for op in load_operators(target) if not op.is_gradient]
    reports = []
    for subject in subjects:
        with progress(f"checking {subject}", as_json):
            reports.append(check(subject, level=level, seed=seed))
    passed = all(report.passed for report in reports)

    def text() -> None:
        for report in reports:
            rows = [
                (row.check, row.case, row.host, row.dtype, "ok" if row.passed else "FAILED", row.detail)
                for row in report.rows
                if everything or not row.passed
            ]
            if rows:
                table(None, ("check", "case", "host", "dtype", "verdict", "detail"), rows)
            click.echo(report.summary())

    emit({"passed": passed, "reports": [report.as_dict() for report in reports]}, as_json, text)
    return 0 if passed else 1
