"""Header and section table of a .bin: bounds first, then checksums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opforge.bin.layout import ALIGNMENT, HEADER, MAGIC, SECTION, VERSION, Kind
from opforge.bin.native import crc32c
from opforge.errors import ArgumentError, CorruptFileError, UnsupportedError

__all__ = ["Section", "Table", "read_table", "section_bytes"]

_MAX_SECTIONS = 64


@dataclass(frozen=True)
class Section:
    """A row of the section table."""

    kind: int
    name: str
    required: bool
    dtype: int
    offset: int
    size: int
    count: int
    crc: int


@dataclass(frozen=True)
class Table:
    """Header and section table."""

    size: int
    version: int
    min_reader: int
    sections: list[Section]


def read_table(path: Path) -> Table:
    """Read and check the header and the section table."""
    if not path.is_file():
        raise ArgumentError("there is no such file", where=str(path))
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(HEADER.itemsize)
        _expect(
            path, "header", len(head) == HEADER.itemsize, "the file is too short", f">= {HEADER.itemsize} bytes", size
        )
        header = np.frombuffer(head, HEADER)[0]
        _expect(path, "header", head[:8] == MAGIC, "this is no opforge bin", MAGIC, head[:8])
        _expect(path, "header", crc32c(head[:60]) == header["header_crc"], "checksum differs", None, None)
        if header["min_reader"] > VERSION:
            raise UnsupportedError(
                "the file needs a newer reader",
                where=str(path),
                expected=f"format version <= {VERSION}",
                got=int(header["min_reader"]),
                hint="upgrade opforge",
            )
        count = int(header["sections"])
        _expect(
            path,
            "header",
            int(header["file_size"]) == size,
            "the file is cut or too long",
            f"{header['file_size']} bytes",
            f"{size} bytes",
        )
        _expect(path, "header", 1 <= count <= _MAX_SECTIONS, "bad number of sections", f"1 to {_MAX_SECTIONS}", count)
        _expect(
            path, "header", header["table_offset"] == 64 and header["entry_size"] == 64, "bad table place", 64, None
        )
        body = stream.read(SECTION.itemsize * count)
        _expect(path, "section table", len(body) == SECTION.itemsize * count, "the file is too short", None, size)
        _expect(path, "section table", crc32c(body) == header["table_crc"], "checksum differs", None, None)
    end = HEADER.itemsize + SECTION.itemsize * count
    sections = []
    for row in np.frombuffer(body, SECTION):
        name = row["name"].decode("ascii", "replace")
        offset, length = int(row["offset"]), int(row["size"])
        inside = offset % ALIGNMENT == 0 and end <= offset < end + ALIGNMENT and offset + length <= size
        _expect(
            path,
            f"section {name!r}",
            inside,
            "it does not lie where it may",
            f"from {end}, within {size}",
            (offset, length),
        )
        with path.open("rb") as stream:
            stream.seek(end)
            gap = stream.read(offset - end)
        _expect(path, f"section {name!r}", not any(gap), "the bytes before it are not zero", None, gap.hex())
        required = bool(row["flags"] & 1)
        if required and int(row["kind"]) not in list(Kind):
            raise UnsupportedError(
                "a required section is unknown", where=f"{path}, section {name!r}", hint="upgrade opforge"
            )
        sections.append(
            Section(
                int(row["kind"]), name, required, int(row["dtype"]), offset, length, int(row["count"]), int(row["crc"])
            )
        )
        end = offset + length
    _expect(path, "section table", end == size, "the file does not end with its last section", end, size)
    _expect(path, "section table", len({s.kind for s in sections}) == count, "a section occurs twice", None, None)
    return Table(size, int(header["version"]), int(header["min_reader"]), sections)


def section_bytes(path: Path, table: Table, section: Section) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Map a section and check its checksum (that of the weights is checked by the runtime, block by block)."""
    if section.size == 0:
        return np.zeros(0, np.uint8)
    data: np.ndarray[tuple[int], np.dtype[np.uint8]] = np.memmap(path, np.uint8, "r", section.offset, (section.size,))
    if section.kind != Kind.WEIGHTS:
        _expect(path, f"section {section.name!r}", crc32c(data) == section.crc, "checksum differs", None, None)
    return data


def _expect(path: Path, where: str, good: bool, what: str, expected: object, got: object) -> None:
    if not good:
        raise CorruptFileError(
            what, where=f"{path}, {where}", expected=expected, got=got, hint="compile the model again"
        )
