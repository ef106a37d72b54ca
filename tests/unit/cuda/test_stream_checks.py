"""Launches without the host's stream are a finding of check, with file and line."""

import json

import pytest

from opforge.cli import main
from opforge.cuda.source import launches
from opforge.schema import load
from opforge.verify._cuda_source_checks import cuda_sources, streams

OP = """
import opforge as of
scale = of.kernel("test.streams::Scale", "(x: T[*S]) -> (y: T[*S])", types={"T": of.floating},
                  sources=["cpu.cc", "cuda.cu"], reference=lambda x: 2 * x, host_name="scale")
"""
CUDA = """
#include "more.cuh"
// k<<<1, 2>>>(x) in a comment
const char* text = "k<<<1, 2>>>(x)";
void launch(cudaStream_t s) {
  k<<<1, 2, 0, s>>>(x);
  k<<<dim3(1, 2), max(3, 4), 0, launch.stream()>>>(x);
  two<float, 4>
      <<<1, 2>>>(x);
  k<<<1,  // a, comment, with, commas
      2, 64>>>(x);
  k<<<1, 2, 0, 0>>>(x);
  k<<<1, 2, 0, static_cast<cudaStream_t>(0)>>>(x);
  k<<<1, 2, 0, cudaStreamPerThread>>>(x);
}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "op.py").write_text(OP)
    (tmp_path / "cpu.cc").write_text("// none\n")
    (tmp_path / "cuda.cu").write_text(CUDA)
    (tmp_path / "more.cuh").write_text("inline void m() { far::k<<<8, 8>>>(1); }\n")
    return tmp_path


def test_launches_are_read():
    found = list(launches(CUDA))
    assert [one.line for one in found] == [6, 7, 9, 10, 12, 13, 14]
    assert found[1].configuration == ("dim3(1, 2)", "max(3, 4)", "0", "launch.stream()")
    assert found[2].kernel == "two<float, 4>" and found[2].configuration == ("1", "2")


def test_what_runs_on_the_default_stream_is_found(folder):
    (operator,) = load(str(folder / "op.py"))
    assert [path.name for path in cuda_sources(operator)] == ["cuda.cu", "more.cuh"]
    rows = {row.case: row for row in streams(operator)}
    good = [case for case, row in rows.items() if row.passed]
    assert good == ["cuda.cu:6", "cuda.cu:7"]
    assert "cuda.cu:9: the launch of two<float, 4> names no stream" in rows["cuda.cu:9"].detail
    assert "names the default stream, cudaStreamPerThread" in rows["cuda.cu:14"].detail
    assert "launch of far::k names no stream" in rows["more.cuh:1"].detail
    assert all("launch.stream()" in row.detail for row in rows.values() if not row.passed)


def test_the_command_reports_it(folder, capsys):
    main(["check", f"{folder / 'op.py'}", "--level", "quick", "--json"])
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    found = [row["case"] for row in report["rows"] if row["check"] == "streams" and not row["passed"]]
    assert found == ["cuda.cu:9", "cuda.cu:10", "cuda.cu:12", "cuda.cu:13", "cuda.cu:14", "more.cuh:1"]
