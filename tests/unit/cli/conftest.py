"""The command line in this process: exit code, standard output, standard error."""

import json
from typing import NamedTuple

import pytest

from opforge.cli import main


class Result(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """Standard output as JSON; strict, so that NaN is an error."""

        def refuse(text):
            raise ValueError(f"{text} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def opforge(capsys):
    """Run ``opforge WORDS...``."""

    def run(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPFORGE_LIBRARY_PATH", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def gate(tmp_path_factory):
    """A folder where a newcomer made MyGate, gate.onnx and gate.bin, and RowScale (kernel), row.onnx and row.bin."""
    place = tmp_path_factory.mktemp("newcomer")
    steps = [
        ["new", "MyGate", "--path", place / "my_gate"],
        ["export", f"{place}/my_gate:MyGate", "-o", place / "gate.onnx"],
        ["compile", place / "gate.onnx", "--package", place / "my_gate"],
        ["new", "RowScale", "--kernel", "--path", place / "row_scale"],
        ["export", f"{place}/row_scale:RowScale", "-o", place / "row.onnx"],
        ["compile", place / "row.onnx", "-o", place / "row.bin", "--package", place / "row_scale"],
    ]
    for step in steps:
        assert main([str(word) for word in step]) == 0, step
    return place
