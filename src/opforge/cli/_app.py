"""The click group that finds commands by file name, and the exit codes.

0 good; 1 a check, comparison or stress failed; 2 wrong use or bad input; 70 a fault of opforge; 130 interrupted. A
kernel that crashes outside of a check ends the process by its signal, after the runtime has told which one it was.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import TextIO

import click

import opforge
from opforge._environment import report_faults
from opforge._quiet import quiet_commands
from opforge.cli._output import print_json
from opforge.errors import CheckFailure, InternalError, OpforgeError

__all__ = ["main"]

_COMMANDS = Path(__file__).parent / "commands"
# The order in which a newcomer meets them; commands that are not named here follow by name.
_ORDER = (
    "new", "check", "build", "occupancy", "tune", "export", "simplify", "compile", "run", "compare", "bench", "profile",
    "stress", "monitor", "report", "pipeline", "checklist",
    "inspect", "doctor",
)  # fmt: skip
_EPILOG = """\b
A first operator, from nothing to a running .bin:
  opforge new MyGate                                  a folder with a formula to edit
  opforge check my_gate                               values, gradients, boundary inputs
  opforge export my_gate:MyGate -o gate.onnx
  opforge compile gate.onnx -o gate.bin --package my_gate
  opforge run gate.bin --random
  opforge compare gate.onnx --package my_gate         against ONNX Runtime

\b
Exit codes: 0 good, 1 a check or comparison failed, 2 wrong use or bad input.
"""


class _Commands(click.Group):
    """Loads ``opforge.cli.commands.NAME`` when NAME is used, so that ``opforge --version`` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the files in ``commands``, the usual path first."""
        names = sorted(p.stem for p in _COMMANDS.glob("*.py") if not p.stem.startswith("_"))
        return sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command's module."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = import_module(f"opforge.cli.commands.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; a reader that has enough is no failure, which click would make of it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_output()
            return 0

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest."""
        if args and args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            from opforge.schema.registry import nearest

            near = nearest(args[0], self.list_commands(ctx))
            hint = f"did you mean {near}?" if near else f"commands: {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=_EPILOG,
    invoke_without_command=True,
)
@click.version_option(opforge.__version__, prog_name="opforge")
@click.pass_context
def _group(context: click.Context) -> None:
    """Declare an operator once; train, export, compile and run it; know that every step computes the same."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


_FOREIGN = ("jax", "numpy", "onnx", "onnxruntime", "tensorflow", "torch")
_FORKED = "os.fork() was called"
"""JAX's words, at the line of whoever starts a program."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    quiet_commands()
    if arguments is None:  # the process is this command's alone
        report_faults()
    words = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in words
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return _run(words, as_json)
        except BrokenPipeError:
            _drop_output()
            return 0


def _drop_output() -> None:
    """The reader (head, less) has enough; nothing more can be said, also not when Python closes the stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: list[str], as_json: bool) -> int:
    try:
        result = _group.main(args=words, prog_name="opforge", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as problem:
        context = problem.ctx if isinstance(problem, click.UsageError) else None
        hint = f"\n  to do: see {context.command_path} --help" if context is not None else ""
        return _report(problem.format_message().rstrip(".") + hint, "UsageError", as_json, 2)
    except CheckFailure as failure:
        return _report(str(failure), type(failure).__name__, as_json, 1)
    except InternalError as fault:
        traceback.print_exc()
        return _report(str(fault), type(fault).__name__, as_json, 70)
    except OpforgeError as problem:
        return _report(str(problem), type(problem).__name__, as_json, 2)
    except BrokenPipeError:
        raise
    except OSError as problem:
        return _report(_system_words(problem), type(problem).__name__, as_json, 2)
    except MemoryError:
        return _report("not enough memory", "MemoryError", as_json, 2)
    except Exception as problem:
        # Nothing that a user does should come here; what happened is for the report of the fault.
        traceback.print_exc()
        ours = InternalError(f"{type(problem).__name__}: {problem}", where="opforge " + " ".join(words[:1]))
        return _report(str(ours), "InternalError", as_json, 70)


_SYSTEM = {
    errno.EACCES: "allow this user to read or write it, or name another place",
    errno.EDQUOT: "free space, or name a place on another disk",
    errno.EEXIST: "a file stands where a folder is needed: name another place",
    errno.EFBIG: "name a place that takes larger files",
    errno.EISDIR: "a folder stands where a file is needed: name a file in it",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "make the folder first, or name one that can hold files",
    errno.ENOSPC: "free space, or name a place on another disk",
    errno.ENOTDIR: "a file stands where a folder is needed: name another place",
    errno.EROFS: "name a place that can be written",
}
"""What to do about errors of the system."""


def _system_words(problem: OSError) -> str:
    """An error of the system in the form of ours."""
    words = "the system refuses a file" if problem.filename else "the system refuses this"
    hint = _SYSTEM.get(problem.errno or 0)
    got = problem.strerror or str(problem)
    return str(OpforgeError(words, where=problem.filename and str(problem.filename), got=got, hint=hint))


def _report(text: str, kind: str, as_json: bool, code: int) -> int:
    if as_json:
        print_json({"error": {"type": kind, "message": text}})
    else:
        click.echo(f"error: {text}", err=True)
    return code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print what opforge warns about in one line; what libraries tell their developers is not for our users."""
    del lineno, line
    foreign = any(f"/{library}/" in filename for library in _FOREIGN) or str(message).startswith(_FORKED)
    if issubclass(category, RuntimeWarning) and not foreign:
        click.echo(f"warning: {message}", file=file or sys.stderr)
