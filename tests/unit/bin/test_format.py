"""The writer and the reader agree, bytes and limits are as FORMAT.md says."""

import struct
from pathlib import Path

import numpy as np
import pytest

from opforge.bin import layout
from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.dimensions import DimensionTable, dimension_text
from opforge.bin.format import read, read_table, write
from opforge.bin.native import crc32c
from opforge.bin.program import Graph, GraphRef, Layout, Node, Program, RequiredOperator, Value
from opforge.errors import ArgumentError, CorruptFileError
from tests.unit.bin.programs import Builder


def everything() -> Program:
    """A program that uses every field of the format."""
    weights = np.arange(600_000, dtype=np.float32)
    values = [
        Value("x", 1, ["N", 3, "2*N+1", None]),
        Value("w", 1, [600_000], data=weights),
        Value("small", 7, [2], data=np.array([1, -2], np.int64)),
        Value("packed", 1, [3, 5], packing="matmul16", data=np.arange(24, dtype=np.float32)),
        Value("image", 1, [1, 20, 7, 9], Layout("c16", (1, 2, 3, 4))),
        Value("any", 10, None),
        Value("inner", 1, ["min(N, 4)", "ceildiv(N, 2)", "(N-1)*3", "N//2"]),
        Value("y", 1, ["N"]),
    ]
    attributes = {
        "i": -5,
        "f": 0.1,
        "s": "text with ünïcode",
        "ints": [1, -2, 2**62],
        "floats": [0.5, -1.25],
        "strings": ["a", "b"],
        "blob": b"OFBCblob",
        "body": GraphRef(1),
        "empty": [],
    }
    nodes = [
        Node("", "If", 19, [0, -1, 1], [5, -1], attributes, ["if_node", "other"]),
        Node("d", "Op", 3, [2], [7], optional=True),
    ]
    inner = Graph("inner", [], [6], [0, 1], [Node("", "Add", 14, [0, 1], [6])])
    required = [RequiredOperator("d", "Op", 3, "d_lib", "hash", "content", "(x: T[n]) -> (y: T[n])", "T: f32")]
    return Program(values, [Graph("main", [0], [7], [], nodes), inner], required, {"key": "värde"}, "cpu", ["avx2"])


def test_every_field_survives(tmp_path: Path) -> None:
    program = everything()
    size = write(program, tmp_path / "m.bin", plan=None)
    assert size == (tmp_path / "m.bin").stat().st_size
    found = read(tmp_path / "m.bin").program
    assert found.graphs == program.graphs
    assert found.required == program.required
    assert (found.metadata, found.target, found.cpu_features) == (program.metadata, "cpu", ["avx2"])
    for a, b in zip(found.values, program.values, strict=True):
        assert (a.name, a.dtype, a.shape, a.layout, a.packing) == (b.name, b.dtype, b.shape, b.layout, b.packing)
        assert (a.data is None) == (b.data is None)
        if b.data is not None:
            np.testing.assert_array_equal(a.data, b.data)


def test_header_and_table_bytes(tmp_path: Path) -> None:
    write(everything(), tmp_path / "m.bin")
    data = (tmp_path / "m.bin").read_bytes()
    magic, version, min_reader, sections, flags, size, table, entry = struct.unpack_from("<8s4I2QI", data)
    assert magic == b"\x89OFB\r\n\x1a\n"
    assert (version, min_reader, flags, size, table, entry) == (0, 0, 0, len(data), 64, 64)
    table_crc, header_crc = struct.unpack_from("<2I", data, 56)
    assert header_crc == crc32c(data[:60])
    assert table_crc == crc32c(data[64 : 64 + 64 * sections])
    names = [s.name for s in read_table(tmp_path / "m.bin").sections]
    assert names == [
        "strings",
        "dimensions",
        "values",
        "program",
        "bytecode",
        "signature",
        "operators",
        "target",
        "metadata",
        "checksums",
        "weights",
        "debug",
    ] or sorted(names) == sorted(set(names))
    for section in read_table(tmp_path / "m.bin").sections:
        assert section.offset % 64 == 0
        assert section.required == (section.name not in ("metadata", "plan", "debug"))


def test_weights_are_aligned_and_small_ones_first(tmp_path: Path) -> None:
    write(everything(), tmp_path / "m.bin")
    weights = next(s for s in read_table(tmp_path / "m.bin").sections if s.name == "weights")
    data = (tmp_path / "m.bin").read_bytes()[weights.offset : weights.offset + weights.size]
    assert data[:16] == np.array([1, -2], np.int64).tobytes()
    assert data[64:160] == np.arange(24, dtype=np.float32).tobytes()
    checks = next(s for s in read_table(tmp_path / "m.bin").sections if s.name == "checksums")
    block, count, *crcs = np.frombuffer((tmp_path / "m.bin").read_bytes(), "<u4", checks.size // 4, checks.offset)
    assert (block, count) == (layout.BLOCK, 3)
    assert crcs == [crc32c(data[k : k + layout.BLOCK]) for k in range(0, len(data), layout.BLOCK)]


def crc_by_definition(data: bytes) -> int:
    """Bit by bit, from the polynomial (RFC 3720, appendix B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_crc32c_against_its_definition_and_published_vectors() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    data = np.random.default_rng(0).integers(0, 256, 40_001, np.uint8).tobytes()
    for size in (0, 1, 7, 8, 9, 4095, 12_288, 12_289, 40_001):
        assert crc32c(data[:size]) == crc_by_definition(data[:size]), size
    assert crc32c(data[13_000:], crc32c(data[:13_000])) == crc_by_definition(data)


@pytest.mark.parametrize(
    ("text", "back"),
    [
        (7, 7),
        (None, None),
        ("N", "N"),
        ("2*N + 1", "2*N+1"),
        ("N-(M-1)", "N-(M-1)"),
        ("N*(M//2)", "N*(M//2)"),
        ("(N-1)*3", "(N-1)*3"),
        ("N//2", "N//2"),
        ("ceildiv(N, 2)", "ceildiv(N, 2)"),
        ("min(N, max(M, 3))", "min(N, max(M, 3))"),
        ("unk__0", "unk__0"),
        ("batch size", "batch size"),
        ("a.b", "a.b"),
    ],
)
def test_dimension_text(text: object, back: object) -> None:
    strings = {"": 0}
    table = DimensionTable(strings)
    index = table.add(text, "here")  # type: ignore[arg-type]
    assert dimension_text(table.rows, list(strings), index) == back


def test_a_shared_dimension_is_stored_once() -> None:
    table = DimensionTable({"": 0})
    assert table.add("N", "") == table.add("N", "")
    assert len(table.rows) == 1


def test_dimension_out_of_range() -> None:
    with pytest.raises(ArgumentError, match="a dimension is out of range"):
        DimensionTable({"": 0}).add(-1, "value 'x'")


def test_failed_write_leaves_nothing(tmp_path: Path) -> None:
    program = everything()
    program.graphs[0].nodes[0].attributes["bad"] = object()
    with pytest.raises(
        ArgumentError, match=r"node 'If', attribute 'bad': an attribute has a type that a bin cannot hold"
    ):
        write(program, tmp_path / "m.bin")
    assert list(tmp_path.iterdir()) == []


def test_failure_while_streaming_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Builder().save(tmp_path / "m.bin")
    before = path.read_bytes()

    def broken(*_: object) -> object:
        raise OSError("disk full")

    monkeypatch.setattr("opforge.bin.format._write_weights", broken)
    with pytest.raises(OSError, match="disk full"):
        write(everything(), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.bin"]


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the folder of the output does not exist"):
        write(everything(), tmp_path / "no" / "m.bin")


def test_not_a_bin(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"x" * 100)
    with pytest.raises(CorruptFileError, match="header: this is no opforge bin"):
        read(tmp_path / "m.bin")


def test_a_constant_must_fill_its_shape(tmp_path: Path) -> None:
    program = Program([Value("c", 1, [3], data=np.zeros(4, np.float32))], [Graph("g")])
    with pytest.raises(ArgumentError, match="c: a constant's data does not fill its shape"):
        write(program, tmp_path / "m.bin")


def test_dtype_numbers_are_those_of_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    for number, dtype in NUMPY_DTYPES.items():
        assert onnx.helper.tensor_dtype_to_np_dtype(number) == dtype


def test_stored_files_are_what_the_writer_makes(tmp_path: Path) -> None:
    """Files in tests/data/bins are old files to readers; after a change of the format make them anew on purpose.

    python -m tests.fuzz.seeds tests/data/bins
    """
    from tests.fuzz.seeds import main

    main(tmp_path)
    stored = Path(__file__).resolve().parents[2] / "data" / "bins"
    assert sorted(p.name for p in stored.iterdir()) == sorted(p.name for p in tmp_path.glob("*.bin"))
    for path in stored.iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name
