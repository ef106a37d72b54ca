"""``opforge new``: write a new operator, alone in a folder or as an installable package."""

from __future__ import annotations

import keyword
import re
import shlex
import shutil
import tempfile
from pathlib import Path

import click

import opforge
from opforge._files import permissions
from opforge.cli._output import emit, json_option
from opforge.cli._templates import FORMULA, KERNEL, PACKAGE, render
from opforge.errors import ArgumentError
from opforge.schema import snake_case

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge new MyGate                       my_gate/: op.py with a formula, cases.py, README.md
  opforge new MyGate --domain com.company.ai --kernel
  opforge new MyGate --package             an installable project with an entry point
"""


@click.command("new", short_help="Write a new operator, ready to check.", epilog=_EPILOG)
@click.argument("name")
@click.option("--domain", default="local.test", show_default=True, help="ONNX domain of the operator.")
@click.option("--kernel", is_flag=True, help="Write a kernel operator (C++) instead of a formula.")
@click.option("--package", is_flag=True, help="Write an installable Python package around it.")
@click.option("--path", type=click.Path(path_type=Path), help="Folder to make. [default: the name in snake_case]")
@json_option
def command(name: str, domain: str, kernel: bool, package: bool, path: Path | None, as_json: bool) -> None:
    """Write the operator NAME (CamelCase) in a new folder.

    A formula operator is one Python expression: kernels, gradients, ONNX body and bytecode come from it. A kernel
    operator (--kernel) is for everything else: you write C++, the reference and the gradient.
    """
    function = snake_case(name)
    _validate(name, function, domain)
    folder = path or Path(function)
    values = {
        "name": name,
        "name_w": f"{name}GradW",
        "domain": domain,
        "function": function,
        "function_w": snake_case(f"{name}GradW"),
        "folder": folder.name,
        "package": f"{function}_op",
        "distribution": f"{function.replace('_', '-')}-op",
        "version": opforge.__version__,
        "call": "np.ones((2, 3)), np.ones(2)" if kernel else "np.linspace(-3, 3, 7)",
    }
    files = render(KERNEL if kernel else FORMULA, **values)
    if package:
        del files["README.md"]
        files = {f"src/{values['package']}/{function}/{relative}": text for relative, text in files.items()}
        files[f"src/{values['package']}/{function}/__init__.py"] = f'"""The operator {name}."""\n'
        files |= render(PACKAGE, **values)
    _write(folder, files)
    made = [str(folder / relative) for relative in sorted(files)]

    def text() -> None:
        for item in made:
            click.echo(f"made {item}")
        source = next(item for item in made if item.endswith("op.py"))
        click.echo(f"next: edit {source}, then opforge check {shlex.quote(str(folder))}")
        if package:
            click.echo(f"      opforge build {shlex.quote(str(folder))} --wheel makes a wheel of it")

    emit({"operator": f"{domain}::{name}", "folder": str(folder), "files": made}, as_json, text)


def _validate(name: str, function: str, domain: str) -> None:
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or keyword.iskeyword(function):
        raise ArgumentError(
            "this is no operator name",
            where="new",
            expected="CamelCase letters and digits, such as CustomGELU",
            got=repr(name),
            hint=_camel(name),
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", domain):
        raise ArgumentError(
            "this is no operator domain",
            where="new",
            expected="dotted lower-case words, such as com.company.ai or local.test",
            got=repr(domain),
        )


def _camel(name: str) -> str | None:
    words = re.findall(r"[A-Za-z0-9]+", name)
    proposal = "".join(word[0].upper() + word[1:] for word in words)
    return f"write {proposal}" if re.fullmatch(r"[A-Z][A-Za-z0-9]*", proposal) and proposal != name else None


def _write(folder: Path, files: dict[str, str]) -> None:
    """Make the whole folder or nothing: the files are written aside and moved into place."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ArgumentError("the folder is not empty", where=str(folder), hint="choose another --path")
    if folder.exists() and not folder.is_dir():
        raise ArgumentError("a file of this name is there", where=str(folder), hint="choose another --path")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".opforge-new-", dir=folder.parent))
    try:
        for relative, text in files.items():
            target = aside / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        aside.chmod(permissions(0o777))  # mkdtemp made it for its owner alone
        if folder.exists():
            folder.rmdir()
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
