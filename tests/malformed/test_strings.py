"""Files whose strings lie: numbers that are no texts, layouts and packings that strings have not, kernels without."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opforge.bin.format import read_table
from opforge.bin.layout import Kind
from opforge.bin.program import Layout
from opforge.bin.session import Session
from opforge.errors import CorruptFileError, OpforgeError, UnsupportedError
from tests.fuzz.seeds import strings
from tests.malformed.test_bin_files import signed
from tests.unit.bin.programs import Builder

FEEDS = {"x": np.array([["a", "é b"], ["", "1.5"]], object), "n": np.float32([1, 2.5])}


def test_the_file_itself_runs(tmp_path: Path) -> None:
    got = Session(strings().save(tmp_path / "model.bin")).run(FEEDS)
    values = list(got.values())
    assert values[2].tolist() == [1, 2.5]
    assert values[3].tolist() == [["a", ""], ["", "é b"]]
    assert values[1].dtype == np.bool_
    assert [v.tolist() for v in values[4]][1][0] == ["a", "", "aa", "a"]


def number_beyond_the_texts(b: Builder) -> None:
    next(v for v in b.program.values if v.dtype == 8 and v.data is not None).data = np.array([1, 2, 10**6], np.uint32)


def packed(b: Builder) -> None:
    next(v for v in b.program.values if v.dtype == 8 and v.data is not None).packing = "matmul16"


def in_blocks(b: Builder) -> None:
    value = b.program.values[b.graph.inputs[0]]
    value.shape, value.layout = [1, 2, 3, 4], Layout("c16")


def a_kernel_without(b: Builder) -> None:
    b.node("Relu", [b.graph.inputs[0]], object, None)


def bits_of_strings(b: Builder) -> None:
    b.node("BitCast", [b.graph.inputs[0]], np.int32, None, since=26)


def strings_of_bits(b: Builder) -> None:
    b.node("BitCast", [b.constant(np.int32([7]))], object, None, since=26)


def numbers_as_strings(b: Builder) -> None:
    b.output(b.node("Identity", [b.constant(np.int32([7, 10**6]))], object, None))


def keys_that_are_no_constant(b: Builder) -> None:
    node = next(n for n in b.graph.nodes if n.op == "Lookup")
    node.inputs[1] = b.graph.inputs[0]


def keys_of_another_dtype(b: Builder) -> None:
    node = next(n for n in b.graph.nodes if n.op == "Lookup")
    node.inputs[1] = b.constant(np.array([1, 2]))


def pattern(b: Builder) -> None:
    next(n for n in b.graph.nodes if n.op == "RegexFullMatch").attributes["pattern"] = "(((a{900}){900}){900})*"


def no_pattern_but_a_number(b: Builder) -> None:
    next(n for n in b.graph.nodes if n.op == "RegexFullMatch").attributes["pattern"] = 7


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (number_beyond_the_texts, CorruptFileError, "an element of a constant is no text of the file"),
        (packed, CorruptFileError, "section 'values': a record is not valid"),
        (in_blocks, CorruptFileError, "section 'values': a record is not valid"),
        (a_kernel_without, OpforgeError, "the kernel takes and gives no strings|no kernel for"),
        (bits_of_strings, UnsupportedError, "the kernel takes and gives no strings"),
        (strings_of_bits, UnsupportedError, "the kernel takes and gives no strings"),
        (numbers_as_strings, OpforgeError, "Identity cannot change a dtype"),
        (keys_that_are_no_constant, OpforgeError, "the keys are no constant list"),
        (keys_of_another_dtype, OpforgeError, "the input has not the dtype of the keys"),
        (pattern, OpforgeError, "repeats too much"),
    ],
)
def test_lies(change: Callable[[Builder], None], kind: type[Exception], words: str, tmp_path: Path) -> None:
    b = strings()
    change(b)
    with pytest.raises(kind, match=words):
        Session(b.save(tmp_path / "model.bin")).run(FEEDS)


def test_an_attribute_of_another_kind_is_taken_as_absent(tmp_path: Path) -> None:
    b = strings()
    no_pattern_but_a_number(b)
    Session(b.save(tmp_path / "model.bin")).run(FEEDS)


@pytest.mark.parametrize("damage", [b"\xff", b"\x00", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80"])
def test_texts_that_are_no_utf8(damage: bytes, tmp_path: Path) -> None:
    path = strings().save(tmp_path / "model.bin")
    data = bytearray(path.read_bytes())
    section = next(s for s in read_table(path).sections if s.kind == Kind.STRINGS)
    at = data.index(b"(?i)(a|", section.offset)
    data[at : at + len(damage)] = damage
    path.write_bytes(signed(bytes(data)))
    with pytest.raises(CorruptFileError, match="a text is not valid UTF-8"):
        Session(path)


def test_ends_of_texts_that_lie(tmp_path: Path) -> None:
    path = strings().save(tmp_path / "model.bin")
    whole = path.read_bytes()
    section = next(s for s in read_table(path).sections if s.kind == Kind.STRINGS)
    for number in (0, 2**31, 2**32 - 1):
        data = bytearray(whole)
        struct.pack_into("<I", data, section.offset + 8 + 4 * 2, number)
        path.write_bytes(signed(bytes(data)))
        with pytest.raises(CorruptFileError, match="a text lies outside the section"):
            Session(path)
