"""The click group that finds commands by file name, and the exit codes.

0 good; 1 a check or comparison failed; 2 wrong use or bad input; 70 a fault of opforge; 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

import click

import opforge
from opforge.errors import CheckFailure, InternalError, OpforgeError

__all__ = ["main"]

_COMMANDS = Path(__file__).parent / "commands"


class _Commands(click.Group):
    """Loads ``opforge.cli.commands.NAME`` when NAME is used, so that ``opforge --help`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the files in ``commands``."""
        return sorted(p.stem for p in _COMMANDS.glob("*.py") if not p.stem.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command's module."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"opforge.cli.commands.{cmd_name}").command
        return command


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(opforge.__version__, prog_name="opforge")
def _group() -> None:
    """Declare an operator once; train, export, compile and run it; know that every step computes the same."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in words
    try:
        result = _group.main(args=words, prog_name="opforge", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as problem:
        _report(problem.format_message(), "UsageError", as_json)
        if not as_json and isinstance(problem, click.UsageError) and problem.ctx is not None:
            click.echo(f"see: {problem.ctx.command_path} --help", err=True)
        return 2
    except CheckFailure as failure:
        _report(str(failure), type(failure).__name__, as_json)
        return 1
    except InternalError as fault:
        traceback.print_exc()
        _report(str(fault), type(fault).__name__, as_json)
        return 70
    except OpforgeError as problem:
        _report(str(problem), type(problem).__name__, as_json)
        return 2
    except OSError as problem:
        name = f"{problem.filename}: " if problem.filename else ""
        _report(f"{name}{problem.strerror or problem}", type(problem).__name__, as_json)
        return 2


def _report(text: str, kind: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"error": {"type": kind, "message": text}}))
    else:
        click.echo(f"error: {text}", err=True)
