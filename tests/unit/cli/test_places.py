"""What a user names, where results go, in which locale: a right result or a clear error, and nothing half-written."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import opforge as of
from opforge._files import whole_file

pytestmark = pytest.mark.compiler

SOURCE = Path(of.__file__).parents[1]
PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
MODELS = ("compile", "simplify", "run", "compare", "bench", "profile", "inspect", "check", "report")
WRITERS = {  # what each writes, and how its file is named
    "export": (["export", "my_gate:MyGate", "-o"], ".onnx"),
    "simplify": (["simplify", "gate.onnx", "--package", "my_gate", "-o"], ".onnx"),
    "compile": (["compile", "gate.onnx", "--package", "my_gate", "-o"], ".bin"),
    "run": (["run", "gate.bin", "--random", "--output"], ".npz"),
    "compare": (["compare", "gate.onnx", "--package", "my_gate", "--in-process", "-o"], ".json"),
    "profile": (["profile", "gate.bin", "--runs", "1", "--flame"], ".svg"),
    "inspect": (["inspect", "gate.bin", "--memory", "--out"], ".svg"),
    "build": (["build", "my_gate", "--out"], ""),
    "new": (["new", "GateTwo", "--path"], ""),
}


def refused(result, *texts):
    """Assert an error of ours in words: exit code 2, nothing on standard output, no traceback."""
    assert (result.code, result.out) == (2, ""), (result.out, result.err)
    assert "error: " in result.err and "Traceback" not in result.err
    for text in texts:
        assert text in result.err
    return result


def alone(folder, *words, size=None, **environment):
    """Run the command line in a process of its own: its exit code, standard output and standard error as bytes."""

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    done = subprocess.run(
        [sys.executable, "-m", "opforge", *words],
        capture_output=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
        preexec_fn=limited if size is not None else None,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def place(folder, gate):
    """A working directory with the gate's package, model and program."""
    for name in ("my_gate", "gate.onnx", "gate.bin"):
        (folder / name).symlink_to(gate / name)
    return folder


@pytest.mark.parametrize("command", MODELS)
def test_files_that_are_no_models(opforge, folder, command):
    (folder / "empty.onnx").touch()
    (folder / "folder.onnx").mkdir()
    more = {"run": ["--random"], "simplify": ["-o", "out.onnx"]}.get(command, [])
    said = refused(opforge(command, "empty.onnx", *more), "empty.onnx: ", "not an ONNX model", "an empty file")
    assert "export or fetch it again" in said.err
    refused(opforge(command, "folder.onnx", *more), "folder")
    refused(opforge(command, "missing.onnx", *more), "missing.onnx")
    assert sorted(p.name for p in folder.iterdir()) == ["empty.onnx", "folder.onnx"]


@pytest.mark.parametrize("command", ["check", "build", "stress", "report", "occupancy"])
def test_an_empty_name_is_not_the_working_directory(opforge, place, command):
    # A shell gives it for a variable that is not set.
    for target in ("", ":MyGate"):
        refused(opforge(command, target), "no package is named", "expected: a package, a folder or a .py file")
    refused(opforge(command, os.devnull), "not a Python file")


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_where_a_folder_should_be_and_the_other_way_round(opforge, place, name):
    words, suffix = WRITERS[name]
    (place / "taken").write_text("mine")
    (place / "folder").mkdir()
    known = sorted(p.name for p in place.iterdir())
    said = refused(opforge(*words, f"taken/x{suffix}"), "taken")
    assert ".part" not in said.err, "the file that is written beside it is no name that a user knows"
    if suffix:
        said = refused(opforge(*words, "folder"))
        assert ".part" not in said.err
    assert (place / "taken").read_text() == "mine"
    assert sorted(p.name for p in place.iterdir()) == known


@pytest.mark.parametrize("name", ["compile", "profile", "build", "run"])
def test_a_disk_that_is_full_leaves_nothing(place, name):
    words, suffix = WRITERS[name]
    out = f"full/x{suffix}"
    (place / "full").mkdir()
    environment = {"OPFORGE_CACHE": str(place.parent / "cache")} if name != "build" else {}
    code, said, err = alone(place, *words, out, size=100, **environment)
    assert (code, said) == (2, b""), err
    assert b": the system refuses a file\n  got: File too large\n  to do: " in err
    assert f"error: {out}".encode() in err and b"Traceback" not in err
    assert not [path for path in (place / "full").rglob("*") if path.is_file()]


def test_whole_file_names_the_file_that_was_asked_for(tmp_path):
    target = tmp_path / "wanted.txt"
    with pytest.raises(OSError, match=r"No space left on device: '.*wanted.txt'"), whole_file(target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "source.txt")
    with pytest.raises(FileNotFoundError, match="other"), whole_file(target):
        (tmp_path / "other").read_text()  # is about the other file
    with pytest.raises(PermissionError, match=r"wanted.txt"), whole_file(target) as temporary:
        raise PermissionError(errno.EACCES, "Permission denied", str(temporary))
    with pytest.raises(FileNotFoundError, match=r"nowhere/x'"), whole_file(tmp_path / "nowhere" / "x"):
        pass
    assert not list(tmp_path.iterdir())


def test_names_with_blanks_and_other_alphabets(opforge, folder, gate):
    names = ["my gate ü", "tör 名.onnx", "b ü.bin", "y ü.npz", "s ü.onnx", "p ü.svg"]
    package, model, program, result, simple, picture = names
    for words in (
        ["new", "MyGate", "--path", package],
        ["check", package, "--level", "quick"],
        ["export", f"{package}:MyGate", "-o", model],
        ["simplify", model, "--package", package, "-o", simple],
        ["compile", model, "--package", package, "-o", program],
        ["run", program, "--random", "--output", result],
        ["compare", model, "--package", package, "--engine", "opforge", "--engine", "onnxruntime", "--in-process"],
        ["inspect", program, "--memory", "--out", picture],
        ["build", package],
    ):
        done = opforge(*words)
        assert done.code == 0, (words, done.out, done.err)
    assert sorted(p.name for p in folder.iterdir()) == sorted(names)


def test_a_locale_without_those_letters(folder, gate):
    (folder / "b ü.bin").symlink_to(gate / "gate.bin")
    shutil.copytree(gate / "my_gate", folder / "g ü")
    code, out, err = alone(folder, "inspect", "b ü.bin", **{**PLAIN, "PYTHONUTF8": "1"})
    assert (code, err) == (0, b"") and "b ü.bin: " in out.decode()
    # Without UTF-8 altogether the name is bytes.
    code, out, err = alone(folder, "check", "x ü.onnx", **PLAIN)
    assert code == 2 and err.startswith(b"error: x ??.onnx: there is no such model")
    code, out, err = alone(folder, "inspect", "b ü.bin", **PLAIN)
    assert (code, err) == (0, b"") and b"b ??.bin: " in out
    for words in (["run", "b ü.bin", "--random"], ["check", "g ü", "--level", "quick"]):
        code, out, err = alone(folder, *words, **PLAIN)
        assert (code, out) == (2, b"")
        assert "the name holds bytes that are no UTF-8" in err.decode() and b"Traceback" not in err
        assert rb"got: b'\xc3\xbc'" in err


@pytest.mark.parametrize("words", [["--help"], ["check", "--help"], ["doctor"], ["inspect", "gate.bin", "--nodes"]])
def test_a_reader_that_has_enough(place, words):
    command = ["bash", "-c", 'set -o pipefail; "$0" -m opforge "$@" | head -1', sys.executable, *words]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=place, check=False)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)
