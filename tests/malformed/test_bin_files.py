"""Damaged and hostile .bin files: an error that names the section, exit code 2, never a crash."""

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opforge._paths import library_dir
from opforge.bin.decode import NUMPY_DTYPES
from opforge.bin.format import read_table
from opforge.bin.native import crc32c, native
from opforge.bin.program import GraphRef, Layout, Node, Program
from opforge.bin.session import Session
from opforge.errors import CorruptFileError, OpforgeError
from opforge.expr import ProgramBuilder
from tests.unit.bin.programs import Builder

RUN = library_dir() / "opforge-run"


def a_blob() -> bytes:
    b = ProgramBuilder()
    x = b.input()
    b.output(b.op("add", x, b.constant(1.0)))
    return b.build().encode()


def a_model(folder: Path) -> Path:
    """A model with every section: weights, bytecode, metadata, plan-free debug names."""
    b = Builder()
    x = b.input("x", np.float32, ["N", 4])
    w = b.constant(np.arange(8, dtype=np.float32).reshape(2, 4), "w")
    joined = b.node("Concat", [x, w], np.float32, [None, 4], axis=0)
    y = b.node("Formula", [joined], np.float32, [None, 4], domain="opforge", since=1, bytecode=a_blob())
    b.output(b.node("Reshape", [y, b.constant(np.array([4, -1]))], np.float32, [4, None], name="y"))
    return b.save(folder / "model.bin")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = a_model(tmp_path_factory.mktemp("malformed"))
    result = Session(path).run({"x": np.ones((2, 4), np.float32)})["y"]
    assert result.shape == (4, 4)
    return path


def attempt(data: bytes, folder: Path) -> str:
    """Open and run; return the message of the error, "" when there was none."""
    path = folder / "broken.bin"
    path.write_bytes(data)
    try:
        Session(path, threads=1).run({"x": np.ones((2, 4), np.float32)})
    except OpforgeError as error:
        return str(error)
    return ""


def signed(data: bytes) -> bytes:
    """Make all checksums right again, so that the damage reaches the checks behind them."""
    out = bytearray(data)
    count = struct.unpack_from("<I", out, 16)[0]
    for k in range(min(count, (len(out) - 64) // 64)):
        at = 64 + 64 * k
        kind, _, _, _, offset, size = struct.unpack_from("<4I2Q", out, at)
        if kind != 11 and offset + size <= len(out):
            struct.pack_into("<I", out, at + 12, crc32c(bytes(out[offset : offset + size])))
    struct.pack_into("<I", out, 56, crc32c(bytes(out[64 : 64 + 64 * min(count, 64)])))
    struct.pack_into("<I", out, 60, crc32c(bytes(out[:60])))
    return bytes(out)


def test_cut_at_every_section_boundary(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    cuts = {0, 1, 63, 64, 65}
    for section in read_table(model).sections:
        for edge in (section.offset, section.offset + section.size):
            cuts |= {edge - 1, edge, edge + 1}
    for cut in sorted(cuts):
        if cut < len(data):
            assert "header" in attempt(data[:cut], tmp_path), cut
    assert "the file is cut or too long" in attempt(data + b"\0", tmp_path)


def test_cut_with_a_header_that_claims_so(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    for section in read_table(model).sections:
        cut = bytearray(data[: section.offset + section.size // 2])
        struct.pack_into("<Q", cut, 24, len(cut))
        assert "section" in attempt(signed(bytes(cut)), tmp_path), section.name


def test_every_byte_of_header_and_table_flipped(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    end = 64 + 64 * len(read_table(model).sections)
    for position in range(end):
        for mask in (0x01, 0x80):
            broken = bytearray(data)
            broken[position] ^= mask
            message = attempt(bytes(broken), tmp_path)
            assert "header" in message or "section" in message, (position, message)


def test_a_flipped_byte_in_each_section_names_it(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    for section in read_table(model).sections:
        for position in {0, section.size // 2, section.size - 1}:
            broken = bytearray(data)
            broken[section.offset + position] ^= 0x10
            assert f"section '{section.name}'" in attempt(bytes(broken), tmp_path)


def test_header_and_table_flips_behind_good_checksums(model: Path, tmp_path: Path) -> None:
    """Nothing here may crash; what is accepted must still run and give the same numbers."""
    data = model.read_bytes()
    end = 64 + 64 * len(read_table(model).sections)
    for position in range(8, end):
        for mask in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[position] ^= mask
            attempt(signed(bytes(broken)), tmp_path)


def test_every_byte_of_the_small_sections_behind_good_checksums(model: Path, tmp_path: Path) -> None:
    """A program that passes the verifier cannot read or write out of bounds, whatever its bytes say."""
    data = model.read_bytes()
    for section in read_table(model).sections:
        if section.name in ("weights", "debug", "metadata"):
            continue
        for position in range(section.offset, section.offset + section.size):
            for mask in (0x01, 0x40, 0xFF):
                broken = bytearray(data)
                broken[position] ^= mask
                attempt(signed(bytes(broken)), tmp_path)


def patched(model: Path, name: str, offset: int, form: str, *values: int) -> bytes:
    data = bytearray(model.read_bytes())
    index = next(k for k, s in enumerate(read_table(model).sections) if s.name == name)
    struct.pack_into(form, data, 64 + 64 * index + offset, *values)
    return signed(bytes(data))


@pytest.mark.parametrize(
    ("offset", "form", "values"),
    [
        (16, "<2Q", (2**64 - 64, 128)),  # offset + size wraps to 64
        (16, "<Q", (2**64 - 64,)),
        (24, "<Q", (2**64 - 1,)),
        (24, "<Q", (2**63,)),
        (16, "<Q", (0,)),
        (16, "<Q", (1,)),
    ],
)
def test_offsets_and_sizes_that_wrap(
    model: Path, tmp_path: Path, offset: int, form: str, values: tuple[int, ...]
) -> None:
    for name in ("strings", "values", "weights"):
        assert f"section '{name}'" in attempt(patched(model, name, offset, form, *values), tmp_path)


def test_counts_that_lie(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    for section in read_table(model).sections:
        if section.name in ("weights", "debug"):
            continue
        for count in (0, 1, 2**22 + 1, 2**31, 2**32 - 1):
            broken = bytearray(data)
            struct.pack_into("<I", broken, section.offset, count)
            message = attempt(signed(bytes(broken)), tmp_path)
            if count > 2**22:
                assert "section" in message or "target" in message, (section.name, count)


def test_zero_sections_and_a_missing_one(model: Path, tmp_path: Path) -> None:
    data = bytearray(model.read_bytes())
    struct.pack_into("<I", data, 16, 0)
    assert "bad number of sections" in attempt(signed(bytes(data)), tmp_path)
    assert "section 'program': a section is missing" in attempt(patched(model, "program", 0, "<2I", 77, 0), tmp_path)


def test_unknown_sections(model: Path, tmp_path: Path) -> None:
    assert "a required section is unknown to this reader" in attempt(patched(model, "debug", 0, "<2I", 99, 1), tmp_path)
    assert attempt(patched(model, "debug", 0, "<2I", 99, 0), tmp_path) == ""
    assert "a section occurs twice" in attempt(patched(model, "debug", 0, "<2I", 1, 1), tmp_path)


def test_a_newer_file(model: Path, tmp_path: Path) -> None:
    data = bytearray(model.read_bytes())
    struct.pack_into("<2I", data, 8, 7, 7)
    assert "the file needs a newer reader\n  expected: format version <= 0\n  got: 7" in attempt(
        signed(bytes(data)), tmp_path
    )
    struct.pack_into("<2I", data, 8, 7, 0)
    assert attempt(signed(bytes(data)), tmp_path) == ""


def hostile(change: Callable[[Builder], None], folder: Path) -> str:
    b = Builder()
    x = b.input("x", np.float32, [2, 4])
    y = b.node("Identity", [x], np.float32, [2, 4])
    b.output(b.node("Identity", [y], np.float32, [2, 4]))
    change(b)
    path = b.save(folder / "hostile.bin")
    with pytest.raises(CorruptFileError) as caught:
        Session(path)
    return str(caught.value)


def reads_before(b: Builder) -> None:
    b.graph.nodes.reverse()


def two_producers(b: Builder) -> None:
    b.graph.nodes[1].outputs = b.graph.nodes[0].outputs


def writes_an_input(b: Builder) -> None:
    b.graph.nodes[0].outputs = [b.graph.inputs[0]]


def writes_a_constant(b: Builder) -> None:
    b.graph.nodes[0].outputs = [b.constant(np.zeros(1, np.float32))]


def reads_itself(b: Builder) -> None:
    b.graph.nodes[0].inputs = b.graph.nodes[0].outputs


def no_output(b: Builder) -> None:
    b.graph.outputs = [b.value("never", np.float32, [1])]


def own_subgraph(b: Builder) -> None:
    b.graph.nodes[0].attributes["body"] = GraphRef(0)


def no_subgraph(b: Builder) -> None:
    b.graph.nodes[0].attributes["body"] = GraphRef(5)


def hidden_capture(b: Builder) -> None:
    inner = Builder(b.program, "inner")
    inner.graph.captures = [b.graph.nodes[1].outputs[0]]
    b.graph.nodes[0].attributes["body"] = GraphRef(1)


def unnamed_graph(b: Builder) -> None:
    Builder(b.program, "inner")


def subgraph_reads_outside(b: Builder) -> None:
    inner = Builder(b.program, "inner")
    inner.graph.nodes.append(Node("", "Identity", 1, [b.graph.inputs[0]], [b.value("z", np.float32, [1])]))
    b.graph.nodes[0].attributes["body"] = GraphRef(1)


def bad_bytecode(b: Builder) -> None:
    b.graph.nodes[0].attributes["bytecode"] = b"OFBC" + bytes([1]) + bytes(59)


def same_names(b: Builder) -> None:
    b.program.values[b.input("second", np.float32, [1])].name = "x"


def no_input(b: Builder) -> None:
    b.graph.nodes[0].inputs = [-1]


def too_few_inputs(b: Builder) -> None:
    b.graph.nodes[0].op = "Gather"


def output_absent(b: Builder) -> None:
    b.graph.nodes[1].outputs = []
    b.graph.outputs = b.graph.nodes[0].outputs


def huge_constant(b: Builder) -> None:
    b.program.values[b.constant(np.zeros((0, 3), np.float32))].shape = [0, 2**46, 2**46]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (reads_before, "it reads a value that is not computed before"),
        (two_producers, "it writes a constant or a value that has another producer"),
        (writes_an_input, "it writes a constant or a value that has another producer"),
        (writes_a_constant, "it writes a constant or a value that has another producer"),
        (reads_itself, "it reads a value that is not computed before"),
        (no_output, "an output of a graph is not computed"),
        (own_subgraph, "an attribute is not valid"),
        (no_subgraph, "an attribute is not valid"),
        (hidden_capture, "an attribute is not valid"),
        (unnamed_graph, "no earlier node names a graph"),
        (subgraph_reads_outside, "it reads a value that is not computed before"),
        (bad_bytecode, "section 'bytecode', blob 0: bytecode is not valid"),
        (same_names, "section 'signature': an input or output is not that of the main graph"),
        (no_input, "a node lacks inputs or outputs that its operator needs"),
        (too_few_inputs, "expected: 2 inputs and an output\n  got: 1 inputs and 1 outputs"),
        (output_absent, "expected: 1 inputs and the first output"),
        (huge_constant, "section 'values': a constant has no possible shape"),
    ],
)
def test_hostile_programs(tmp_path: Path, change: Callable[[Builder], None], words: str) -> None:
    message = hostile(change, tmp_path)
    assert words in message
    assert "section '" in message


def test_opforge_run_refuses_with_status_2(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.bin"
    broken.write_bytes(model.read_bytes()[:-1])
    for arguments in (
        [str(broken)],
        [str(tmp_path / "none.bin")],
        [str(tmp_path)],
        [str(model), "--input", "z=x.npy"],
        [str(model), "--wrong"],
        [],
    ):
        result = subprocess.run([RUN, *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == 2, arguments
        assert result.stderr.startswith("opforge-run: ")
        assert result.stdout == ""


def test_the_reader_in_python_refuses_too(model: Path, tmp_path: Path) -> None:
    from opforge.bin.format import read

    data = model.read_bytes()
    for section in read_table(model).sections:
        if section.name == "weights":
            continue
        broken = bytearray(data)
        broken[section.offset] ^= 0xFF
        (tmp_path / "b.bin").write_bytes(broken)
        with pytest.raises(CorruptFileError, match=f"section '{section.name}': checksum differs"):
            read(tmp_path / "b.bin")
    for cut in (10, 64, 100, len(data) // 2):
        (tmp_path / "b.bin").write_bytes(data[:cut])
        with pytest.raises(CorruptFileError):
            read(tmp_path / "b.bin")


def test_packed_constants_have_no_layout(tmp_path: Path) -> None:
    """The frame of a c16 value may be larger than the bytes of its packing, which alone were counted."""
    b = Builder()
    w = b.constant(np.ones(8 * 16, np.float32), packing="conv16", shape=[1, 16, 1, 1])
    b.program.values[w].layout = Layout("c16", (255, 255, 255, 255))
    y = b.node("Reorder", [w], np.float32, [1, 16, 1, 1], domain="opforge", since=1)
    b.output(b.node("Add", [y, b.input("x", np.float32, [1])], np.float32, [1, 16, 1, 1]))
    with pytest.raises(CorruptFileError, match="a packed constant has a layout\n  got: value 0 'constant0'"):
        Session(b.save(tmp_path / "broken.bin"))


def test_native_module_takes_no_wrong_arguments() -> None:
    with pytest.raises(TypeError):
        native().Session("x")
    with pytest.raises(OpforgeError):
        native().Session("/nonexistent", 0, False, [], [], True, True, True, NUMPY_DTYPES)


def test_bytes_between_sections_are_zero(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    sections = read_table(model).sections
    end, gaps = 64 + 64 * len(sections), 0
    for section in sections:
        for at in {end, section.offset - 1} if section.offset > end else ():
            broken = bytearray(data)
            broken[at] = 1
            message = attempt(bytes(broken), tmp_path)
            assert f"section '{section.name}': the bytes before a section are not zero" in message
            (tmp_path / "b.bin").write_bytes(broken)
            with pytest.raises(CorruptFileError, match=f"section '{section.name}': the bytes before it are not zero"):
                read_table(tmp_path / "b.bin")
            gaps += 1
        end = section.offset + section.size
    assert gaps > 4


@pytest.mark.parametrize("same_id", [True, False])
def test_metadata_keys_differ(tmp_path: Path, same_id: bool) -> None:
    from opforge.bin.format import read

    b = Builder(Program(metadata={"one": "1", "two": "2"}))
    b.output(b.node("Identity", [b.input("x", np.float32, [2, 4])], np.float32, [2, 4], name="y"))
    path = b.save(tmp_path / "broken.bin")
    sections = {s.name: s.offset for s in read_table(path).sections}
    data = bytearray(path.read_bytes())
    if same_id:
        at = sections["metadata"]
        data[at + 16 : at + 20] = data[at + 8 : at + 12]
    else:  # two ids with the same text
        at = data.index(b"two", sections["strings"])
        data[at : at + 3] = b"one"
    assert "section 'metadata': two entries have the same key\n  got: 'one'" in attempt(signed(bytes(data)), tmp_path)
    with pytest.raises(CorruptFileError, match="two entries of the metadata have the same key"):
        read(path)
