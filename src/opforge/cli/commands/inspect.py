"""``opforge inspect``: what a .bin, an .onnx or a kernel library holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from opforge.cli import _inspect
from opforge.cli._output import emit, json_option
from opforge.errors import ArgumentError

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge inspect model.bin                sections, inputs, operators, what it needs
  opforge inspect model.bin --sections --json
  opforge inspect model.onnx --nodes
  opforge inspect my_gate/_lib/local_test.so
"""
_READERS: dict[str, Callable[[Path, bool, bool], tuple[dict[str, Any], Callable[[], None]]]] = {
    ".bin": _inspect.bin_file,
    ".onnx": _inspect.onnx_file,
    ".so": _inspect.library_file,
}


@click.command("inspect", short_help="What a .bin, .onnx or kernel library holds.", epilog=_EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--sections", is_flag=True, help="Only the section table of a .bin.")
@click.option("--nodes", is_flag=True, help="List every node of a .bin or .onnx.")
@json_option
def command(file: Path, sections: bool, nodes: bool, as_json: bool) -> None:
    """Print what FILE (.bin, .onnx, .so) holds; native code is loaded only for a .so.

    Metadata in a file is printed as a hint; nothing that it names is imported or run.
    """
    reader = _READERS.get(file.suffix)
    if reader is None:
        expected, got = ", ".join(_READERS), file.suffix or "no suffix"
        raise ArgumentError("unknown kind of file", where=str(file), expected=expected, got=got)
    if sections and file.suffix != ".bin":
        raise ArgumentError("only a .bin has sections", where=str(file), got=file.suffix)
    content, text = reader(file, sections, nodes)
    emit(content, as_json, text)
