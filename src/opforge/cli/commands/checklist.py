"""``opforge checklist``: what of the way to a deployed model is done, and what is left."""

from __future__ import annotations

from pathlib import Path

import click

from opforge.cli._output import emit, json_option
from opforge.cli._targets import load_packages
from opforge.errors import ArgumentError

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge pipeline net.py:make --package my_gate -o out
  opforge monitor out/net.bin --seconds 60 --log out/net.jsonl
  opforge checklist out
  opforge checklist out --log /var/log/net.jsonl --stage deploy --stage monitor

\b
Exit codes: 0 everything is done; 1 something is not, or failed; 2 wrong use.
"""
_MARKS = {True: "✓", False: "FAILED", None: "-"}


@click.command("checklist", short_help="What of the way to a deployed model is done, stage by stage.", epilog=_EPILOG)
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="Of the deployed model, as `opforge monitor` writes it; repeatable. [default: FOLDER/NAME.jsonl]",
)
@click.option("--stage", "stages", multiple=True, help="Only this stage; repeatable.")
@json_option
def command(folder: Path, logs: tuple[Path, ...], stages: tuple[str, ...], as_json: bool) -> int:
    """Go through develop, register, export, convert, deploy and monitor for what `opforge pipeline` wrote to FOLDER.

    A row is done where a result in FOLDER says so and the files that it is about are those of now; the .bin itself and
    the logs are looked at here. What is not done stands with the command that does it.
    """
    from opforge.pipeline import STAGES, as_dict, checklist, open_folder

    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        raise ArgumentError("there is no such stage", where="--stage", expected=", ".join(STAGES), got=unknown[0])
    opened = open_folder(folder, logs)
    load_packages(opened.settings.packages)
    answers = checklist(opened, stages)

    def text() -> None:
        stage = ""
        for answer in answers:
            if answer.stage != stage:
                stage = answer.stage
                click.echo(stage)
            click.echo(f"  {_MARKS[answer.passed]} {answer.asks}: {answer.words}")
            if answer.command:
                click.echo(f"    to do: {answer.command}")
        left = sum(not answer.passed for answer in answers)
        click.echo(f"\n{len(answers) - left} of {len(answers)} done")

    emit(as_dict(answers), as_json, text)
    return 0 if all(answer.passed for answer in answers) else 1
