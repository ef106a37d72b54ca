"""Writing and reading .bin files (runtime/format/FORMAT.md).

The writer streams the weights, never holds a second copy of them, and renames the finished file into place, so
that nobody ever sees half a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from opforge._files import whole_file
from opforge.bin.decode import decode
from opforge.bin.encode import Encoded, Placement, PlanEntry, encode
from opforge.bin.layout import ALIGNMENT, BLOCK, HEADER, MAGIC, MIN_READER, SECTION, SMALL, VERSION, Kind
from opforge.bin.native import crc32c
from opforge.bin.program import Program
from opforge.bin.table import Section, read_table, section_bytes
from opforge.errors import ArgumentError

__all__ = ["BinFile", "PlanEntry", "Section", "read", "read_table", "write"]

_OPTIONAL = {Kind.METADATA, Kind.PLAN, Kind.DEBUG}


@dataclass(frozen=True)
class BinFile:
    """A .bin as Python sees it; constants are views of the mapped file."""

    path: Path
    size: int
    version: int
    min_reader: int
    sections: list[Section]
    program: Program
    plan: tuple[int, list[PlanEntry]] | None


def write(
    program: Program,
    path: str | os.PathLike[str],
    *,
    plan: tuple[int, list[PlanEntry]] | None = None,
    weights: bool = True,
) -> int:
    """Write a program to ``path``, replacing a file there in one step.

    Args:
        program: what to store.
        path: where; its folder must exist.
        plan: bytes of the arena and the places in it, for static shapes.
        weights: False leaves zeros (holes of the file) for large constants: enough for a session that only plans.

    Returns:
        The size of the file in bytes.

    Raises:
        ArgumentError: the program holds what a bin cannot, or the folder does not exist. Nothing is left behind.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise ArgumentError("the folder of the output does not exist", where=str(target), hint="create it first")
    if not program.graphs:
        raise ArgumentError("a program needs at least one graph", where=str(target))
    encoded = encode(program, plan)
    with whole_file(target) as temporary, temporary.open("wb") as stream:
        size = _write(stream, encoded, program, weights)
    return size


def read(path: str | os.PathLike[str]) -> BinFile:
    """Read a .bin back, checking header, table and the checksum of every section but the weights.

    Raises:
        CorruptFileError: the file is damaged; the message names the section.
    """
    source = Path(path)
    table = read_table(source)
    contents = {Kind(s.kind): section_bytes(source, table, s) for s in table.sections if s.kind in list(Kind)}
    program, plan = decode(source, contents)
    return BinFile(source, table.size, table.version, table.min_reader, table.sections, program, plan)


def _write(stream: BinaryIO, encoded: Encoded, program: Program, weights: bool) -> int:
    contents = dict(encoded.sections)
    if encoded.weights:
        blocks = -(-encoded.weights_size // BLOCK)
        contents[Kind.CHECKSUMS] = (bytes(8 + 4 * blocks), blocks)  # filled in when the weights are written
    kinds = sorted(contents)
    count = len(kinds) + bool(encoded.weights)
    table = np.zeros(count, SECTION)
    offset = HEADER.itemsize + SECTION.itemsize * count
    for row, kind in zip(table, kinds, strict=False):
        body, records = contents[kind]
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        _fill(row, kind, offset, len(body), records)
        stream.seek(offset)
        stream.write(body)
        row["crc"] = crc32c(body)
        offset += len(body)
    if encoded.weights:
        offset = -(-offset // ALIGNMENT) * ALIGNMENT
        _fill(table[-1], Kind.WEIGHTS, offset, encoded.weights_size, len(encoded.weights))
        stream.seek(offset)
        checks = _write_weights(stream, encoded, program, weights)
        offset += encoded.weights_size
        body = np.array([BLOCK, len(checks), *checks], "<u4").tobytes()
        row = table[kinds.index(Kind.CHECKSUMS)]
        row["crc"] = crc32c(body)
        stream.seek(int(row["offset"]))
        stream.write(body)
    stream.truncate(offset)  # a last section without bytes still has its place
    header = np.zeros(1, HEADER)
    header["magic"], header["version"], header["min_reader"] = MAGIC, VERSION, MIN_READER
    header["sections"], header["file_size"] = count, offset
    header["table_offset"], header["entry_size"] = HEADER.itemsize, SECTION.itemsize
    header["table_crc"] = crc32c(table.tobytes())
    header["header_crc"] = crc32c(header.tobytes()[:60])
    stream.seek(0)
    stream.write(header.tobytes() + table.tobytes())
    return offset


def _fill(row: Any, kind: Kind, offset: int, size: int, records: int) -> None:  # noqa: ANN401 - a NumPy record
    row["kind"], row["flags"] = kind, 0 if kind in _OPTIONAL else 1
    row["offset"], row["size"], row["count"] = offset, size, records
    row["name"] = kind.name.lower().encode()


def _write_weights(stream: BinaryIO, encoded: Encoded, program: Program, whole: bool) -> list[int]:
    """Stream the constants and return the checksum of each block; unless ``whole``, only the small ones."""
    checks: list[int] = []
    crc, filled = 0, 0
    for chunk in _chunks(encoded if whole else replace(encoded, weights=_small(encoded)), program):
        stream.write(chunk)
        position = 0
        while position < len(chunk):
            part = chunk[position : position + BLOCK - filled]
            crc = crc32c(part, crc)
            filled += len(part)
            position += len(part)
            if filled == BLOCK:
                checks.append(crc)
                crc, filled = 0, 0
    if not whole:
        checks += _of_zeros(encoded.weights_size - len(checks) * BLOCK, crc, filled)
    elif filled:
        checks.append(crc)
    return checks


def _of_zeros(left: int, crc: int, filled: int) -> list[int]:
    """Return the checksums of blocks to the end of the weights, of which the rest is zero."""
    checks = []
    zeros = memoryview(bytes(BLOCK))
    whole = crc32c(zeros)
    while left > 0:
        size = min(BLOCK, left)
        checks.append(whole if size == BLOCK and not filled else crc32c(zeros[: size - filled], crc))
        crc, filled, left = 0, 0, left - size
    return checks


def _small(encoded: Encoded) -> list[Placement]:
    return [place for place in encoded.weights if place.size <= SMALL]


def _chunks(encoded: Encoded, program: Program) -> Iterator[memoryview]:
    for place in encoded.weights:
        data = program.values[place.value].data
        assert data is not None
        yield np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        yield memoryview(bytes(-place.size % ALIGNMENT))
