"""``opforge new``: write a new operator, alone in a folder or as an installable package."""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from pathlib import Path

import click

import opforge
from opforge.cli._output import emit, json_option
from opforge.cli._templates import FORMULA, KERNEL, PACKAGE, render
from opforge.errors import ArgumentError
from opforge.schema import snake_case

__all__ = ["command"]


@click.command("new")
@click.argument("name")
@click.option("--domain", default="local.test", show_default=True, help="ONNX domain of the operator, e.g. com.company.ai.")
@click.option("--kernel", is_flag=True, help="Write a kernel operator (C++) instead of a formula.")
@click.option("--package", is_flag=True, help="Write an installable Python package around it.")
@click.option("--path", type=click.Path(path_type=Path), help="Folder to make (default: the operator's snake_case name).")
@json_option
def command(name: str, domain: str, kernel: bool, package: bool, path: Path | None, as_json: bool) -> None:
    """Write the operator NAME (CamelCase) in a new folder, ready for check, build and export."""
    _validate(name, domain)
    function = snake_case(name)
    folder = path or Path(function)
    values = {
        "name": name,
        "domain": domain,
        "function": function,
        "package": f"{function}_op",
        "distribution": f"{function.replace('_', '-')}-op",
        "version": opforge.__version__,
    }
    files = render(KERNEL if kernel else FORMULA, **values)
    if package:
        files = {f"src/{values['package']}/{function}/{relative}": text for relative, text in files.items()}
        files[f"src/{values['package']}/{function}/__init__.py"] = f'"""The operator {name}."""\n'
        files |= render(PACKAGE, **values)
    _write(folder, files)
    made = [str(folder / relative) for relative in sorted(files)]
    target = values["package"] if package else str(folder)

    def text() -> None:
        for item in made:
            click.echo(f"made {item}")
        first = f"pip install -e {folder} && opforge check {target}" if package else f"opforge check {target}"
        click.echo(f"next: {first}")

    emit({"operator": f"{domain}::{name}", "files": made}, as_json, text)


def _validate(name: str, domain: str) -> None:
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or keyword.iskeyword(snake_case(name)):
        raise ArgumentError(
            "this is no operator name", where="new", expected="CamelCase letters and digits, such as CustomGELU", got=repr(name)
        )
    if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", domain):
        raise ArgumentError(
            "this is no operator domain",
            where="new",
            expected="dotted lower-case words, such as com.company.ai or local.test",
            got=repr(domain),
        )


def _write(folder: Path, files: dict[str, str]) -> None:
    """Make the whole folder or nothing: the files are written aside and moved into place."""
    if folder.exists() and any(folder.iterdir() if folder.is_dir() else [folder]):
        raise ArgumentError("the folder is not empty", where=str(folder), hint="choose another --path, or remove it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".opforge-new-", dir=folder.parent))
    try:
        for relative, text in files.items():
            target = aside / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        aside.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
