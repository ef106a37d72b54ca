"""What commands write: JSON and nothing else on standard output, and no notices of the libraries that they start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.cli import main
from opforge.verify import engines
from tests.notices import without_notices

pytestmark = pytest.mark.compiler

SOURCE = Path(of.__file__).parents[1]
ENGINES = sorted(name for name, engine in engines().items() if engine.availability().ok)

_TENSORFLOW = """
import os
os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\\n")
os.write(2, b"I0000 00:00:1796032819.259723   19417 port.cc:153] oneDNN custom operations are on.\\n")
os.write(2, b"2026-01-01 10:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.\\n")
os.write(2, b"E0000 00:00:1796032819.259723   19417 device.cc:1] what is wrong stays\\n")
print("as is what is printed")
"""


def alone(folder, *words, **environment):
    """Run the command line in a process of its own, whose files nobody but it writes."""
    variables = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-m", "opforge", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**variables, "PYTHONPATH": f"{SOURCE}{os.pathsep}{folder}", **environment},
        check=False,
    )
    return done.returncode, done.stdout, without_notices(done.stderr)


def test_notices_of_an_import_are_taken_out_and_nothing_else(folder):
    (folder / "tensorflow.py").write_text(_TENSORFLOW)
    (folder / "net.py").write_text("import importlib.util\nimportlib.util.find_spec('tensorflow')\nimport tensorflow\n")
    code, out, err = alone(folder, "export", "net.py:make", "-o", "m.onnx")
    assert code == 2
    assert out == "as is what is printed\n"
    noise, *rest = err.splitlines()
    assert noise == "E0000 00:00:1796032819.259723   19417 device.cc:1] what is wrong stays"
    assert rest[0].startswith("error: ")
    # Who wants to see them says so, as to TensorFlow.
    code, out, err = alone(folder, "export", "net.py:make", "-o", "m.onnx", TF_CPP_MIN_LOG_LEVEL="0")
    assert len([line for line in err.splitlines() if "oneDNN" in line or "absl::" in line]) == 3


def test_a_library_that_is_not_started_by_a_command_says_what_it_wants(folder):
    (folder / "tensorflow.py").write_text(_TENSORFLOW)
    done = subprocess.run(
        [sys.executable, "-c", "import opforge, tensorflow"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{folder}"},
        check=True,
    )
    assert len(done.stderr.splitlines()) == 4


@pytest.mark.skipif("litert" not in ENGINES, reason="needs LiteRT")
def test_litert_says_nothing_of_itself(folder, gate):
    words = ("run", gate / "gate.onnx", "--random", "--engine", "litert", "--package", gate / "my_gate")
    code, out, err = alone(folder, *words, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("command", ["run", "compare", "bench", "profile"])
def test_json_is_all_that_an_engine_leaves_on_standard_output(folder, gate, capfd, command, engine):
    np.save("x.npy", np.ones((2, 3), np.float32))
    more = {
        "run": ["--input", "x=x.npy"],
        "compare": ["--in-process"],
        "bench": ["--rounds", "3"],
        "profile": ["--runs", "1"],
    }[command]
    capfd.readouterr()
    code = main(
        [command, str(gate / "gate.onnx"), "--package", str(gate / "my_gate"), "--engine", engine, *more, "--json"]
    )
    out = capfd.readouterr().out
    assert code in (0, 1, 2)
    content = json.loads(out)
    assert (code == 2) == ("error" in content), "a refusal is JSON too"
