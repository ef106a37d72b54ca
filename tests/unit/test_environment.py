"""Values of environment variables that the native runtime reads."""

import os
import subprocess
import sys

import pytest

from opforge import _environment
from opforge.errors import ArgumentError


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "257", "٣"])
def test_no_number_of_threads(monkeypatch, value):
    monkeypatch.setenv("OPFORGE_NUM_THREADS", value)
    with pytest.raises(ArgumentError, match=r"OPFORGE_NUM_THREADS: unknown value\n  expected: a number from 1 to 256"):
        _environment.thread_count()


def test_right_and_absent_values(monkeypatch):
    monkeypatch.setenv("OPFORGE_NUM_THREADS", "3")
    monkeypatch.setenv("OPFORGE_ISA", "v3")
    assert (_environment.thread_count(), _environment.isa()) == (3, "v3")
    monkeypatch.setenv("OPFORGE_NUM_THREADS", "")
    monkeypatch.delenv("OPFORGE_ISA")
    assert (_environment.thread_count(), _environment.isa()) == (None, None)


def test_a_process_with_a_wrong_value_says_so(tmp_path):
    code = "import opforge as of; of.Session('none.bin')"
    (tmp_path / "none.bin").write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "OPFORGE_ISA": "avx2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "OPFORGE_ISA: unknown value" in done.stderr
    assert "expected: baseline, v3, v4" in done.stderr
