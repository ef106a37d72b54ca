"""``opforge inspect``: what a .bin, an .onnx or a kernel library holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from opforge._files import whole_file
from opforge.cli import _inspect
from opforge.cli._memory import memory_plan
from opforge.cli._output import emit, json_option
from opforge.cli._targets import parse_sizes
from opforge.errors import ArgumentError
from opforge.report import memory_picture

__all__ = ["command"]

_EPILOG = """\b
Examples:
  opforge inspect model.bin                sections, inputs, operators, what it needs
  opforge inspect model.bin --sections --json
  opforge inspect model.onnx --nodes
  opforge inspect model.bin --memory --size batch=8 --out plan.svg
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
@click.option("--memory", is_flag=True, help="The memory plan of a .bin: peak, lower bound, buffers.")
@click.option("--size", "sizes", multiple=True, help="With --memory, NAME=NUMBER: a named dimension (else 2).")
@click.option("--out", type=click.Path(path_type=Path), help="With --memory: draw the plan to this .svg.")
@json_option
def command(
    file: Path, sections: bool, nodes: bool, memory: bool, sizes: tuple[str, ...], out: Path | None, as_json: bool
) -> int:
    """Print what FILE (.bin, .onnx, .so) holds; native code is loaded only for a .so.

    With --memory, the memory plan for inputs of these sizes: nodes to the right, bytes of the arena upwards.

    Metadata in a file is printed as a hint; nothing that it names is imported or run. A model that is no
    valid ONNX is shown all the same, with the reason, and the exit code is 2.
    """
    reader = _READERS.get(file.suffix)
    if reader is None:
        expected, got = ", ".join(_READERS), file.suffix or "no suffix"
        raise ArgumentError("unknown kind of file", where=str(file), expected=expected, got=got)
    if sections and file.suffix != ".bin":
        raise ArgumentError("only a .bin has sections", where=str(file), got=file.suffix)
    if (sizes or out) and not memory:
        raise ArgumentError("--size and --out are for --memory", where="inspect")
    if memory:
        _memory_plan(file, parse_sizes(sizes), out, as_json)
        return 0
    content, text = reader(file, sections, nodes)
    emit(content, as_json, text)
    return 0 if content.get("valid", True) else 2


def _memory_plan(file: Path, sizes: Mapping[str, int], out: Path | None, as_json: bool) -> None:
    if file.suffix != ".bin":
        raise ArgumentError("only a .bin has a memory plan", where=str(file), got=file.suffix)
    if out is not None and out.suffix != ".svg":
        raise ArgumentError("the picture is an SVG", where="--out", expected="NAME.svg", got=str(out))
    content, text = memory_plan(file, sizes)
    if out is not None:
        with whole_file(out) as temporary:
            temporary.write_text(memory_picture(content), encoding="utf-8")
    emit(content, as_json, text)
