"""The command line in this process: exit code, standard output, standard error."""

import json
import logging
import sys
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

    before = log_handlers()
    yield run
    # A framework that this test was the first to import logs to the stream of now, which is closed in later ones.
    for handler in log_handlers() - before:
        handler.stream = sys.__stderr__


def log_handlers():
    """Return what writes to streams for loggers that have a name."""
    loggers = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    return {h for logger in loggers for h in logger.handlers if type(h) is logging.StreamHandler}


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
