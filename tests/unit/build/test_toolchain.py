"""The compiler probe: what it finds, and what it says where nothing serves."""

import stat

import pytest

from opforge.build.toolchain import find_compiler
from opforge.errors import ToolchainError


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)


def script(folder, name, text):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.compiler
def test_finds_a_compiler_and_describes_it():
    compiler = find_compiler()
    assert compiler.kind in ("gcc", "clang")
    assert compiler.version.split(".")[0].isdigit()
    assert "-" in compiler.target
    assert compiler.native
    assert len(compiler.identity) == 64


def test_empty_path_lists_candidates_and_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        find_compiler()
    text = str(caught.value)
    assert "no C++ compiler works" in text
    assert "g++: not on PATH" in text
    assert "clang++: not on PATH" in text
    assert "apt-get install g++" in text
    assert "set CXX" in text


def test_cxx_is_honoured_even_where_it_is_wrong(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler-here")
    with pytest.raises(ToolchainError, match="CXX=no-such-compiler-here: not found on PATH"):
        find_compiler()


def test_a_compiler_that_fails_is_rejected_with_its_words(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(script(tmp_path, "broken", "echo 'license expired' >&2; exit 3")))
    with pytest.raises(ToolchainError, match="does not preprocess C\\+\\+17: license expired"):
        find_compiler()


def test_an_old_compiler_is_rejected_by_version(monkeypatch, tmp_path):
    text = "echo '#define __GNUC__ 7\n#define __GNUC_MINOR__ 5\n#define __GNUC_PATCHLEVEL__ 0'"
    monkeypatch.setenv("CXX", str(script(tmp_path, "old", text)))
    with pytest.raises(ToolchainError, match=r"gcc 7\.5\.0 is too old, 9 is the oldest"):
        find_compiler()


@pytest.mark.compiler
def test_cxx_may_name_a_launcher(monkeypatch, tmp_path):
    real = find_compiler().command[0]
    launcher = script(tmp_path, "launcher", 'exec "$@"')
    monkeypatch.setenv("CXX", f"{launcher} {real}")
    compiler = find_compiler()
    assert compiler.command == (str(launcher), real)
    monkeypatch.delenv("CXX")
    assert compiler.identity != find_compiler().identity
