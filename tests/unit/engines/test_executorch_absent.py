"""The ExecuTorch engine where ExecuTorch is not: it says so and how to get it. `make executorch` tests the rest."""

import flatbuffers
import numpy as np
import pytest
import torch
from click.testing import CliRunner

import opforge as of
import opforge.executorch
from opforge.cli.commands.export import command
from opforge.engines.executorch import ExecuTorch, _adapter
from opforge.engines.executorch._program import read_program
from opforge.errors import ArgumentError, CandidateError, CorruptFileError, UnsupportedError
from opforge.verify import find_engine


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setattr(_adapter.util, "find_spec", lambda name: None)


def test_it_says_how_to_get_it(absent):
    state = ExecuTorch().availability()
    assert (state.ok, state.reason) == (False, "the package is not installed")
    assert state.hint == "pip install 'opforge[executorch]'"
    with pytest.raises(CandidateError, match=r"(?s)executorch: the package is not installed.*opforge\[executorch\]"):
        find_engine("executorch")
    with pytest.raises(UnsupportedError, match=r"(?s)ExecuTorch cannot be used here.*opforge\[executorch\]"):
        of.executorch.lower(torch.nn.ReLU(), (torch.ones(3),))


def test_other_files_are_refused(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"")
    with pytest.raises(UnsupportedError, match=r"(?s)lowered from PyTorch.*expected: a \.pte.*opforge export"):
        ExecuTorch().load(tmp_path / "net.onnx")


@pytest.mark.parametrize("arguments", [["opforge.ops:Mish"], ["net.py:make", "--opset", "20"], ["net.py:make"]])
def test_what_is_not_lowered_on_the_command_line(arguments, absent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("import torch\n\ndef make():\n    return torch.nn.ReLU(), (torch.ones(3),)\n")
    done = CliRunner().invoke(command, [*arguments, "-o", "net.pte"])
    assert isinstance(done.exception, ArgumentError | UnsupportedError)
    words = "ExecuTorch cannot be used here" if arguments == ["net.py:make"] else "only a PyTorch module is lowered"
    assert words in str(done.exception) and not (tmp_path / "net.pte").exists()


def made(methods):
    """A program of methods and the operators that each calls, as ExecuTorch's schema lays it out."""
    builder = flatbuffers.Builder(0)

    def table(count, **fields):
        builder.StartObject(count)
        for slot, value in fields.items():
            builder.PrependUOffsetTRelativeSlot(int(slot[1:]), value, 0)
        return builder.EndObject()

    def vector(items):
        builder.StartVector(4, len(items), 4)
        for item in reversed(items):
            builder.PrependUOffsetTRelative(item)
        return builder.EndVector()

    plans = []
    for name, operators in methods.items():
        rows = [table(2, _0=builder.CreateString(n), _1=builder.CreateString(o)) for n, o in operators]
        plans.append(table(9, _0=builder.CreateString(name), _6=vector(rows)))
    builder.Finish(table(9, _1=vector(plans)), file_identifier=b"ET12")
    return bytes(builder.Output())


def test_damaged_files_are_told_from_whole_ones(tmp_path):
    data = made({"forward": [("aten::add", "out"), ("com_example::custom_gelu", "out")], "empty": []})
    path = tmp_path / "made.pte"
    path.write_bytes(data)
    assert read_program(path).methods == {"forward": ("aten::add.out", "com_example::custom_gelu.out"), "empty": ()}
    draw, refused = np.random.default_rng(0), 0
    for _ in range(2000):
        changed = bytearray(data[: draw.integers(9, len(data) + 1)])
        changed[draw.integers(8, len(changed))] = draw.integers(256)
        path.write_bytes(changed)
        try:
            read_program(path)
        except CorruptFileError as problem:
            assert "cut off or damaged" in str(problem)
            refused += 1
    assert refused > 500
