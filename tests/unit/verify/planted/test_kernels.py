"""Faults of kernels: each kind is planted, and reported in words that help."""

import ctypes
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from opforge.build import abi, library_for
from opforge.verify import _contract_checks as contracts
from opforge.verify import _operator_checks as operator_checks
from opforge.verify import check
from opforge.verify._derivative_checks import gradient
from opforge.verify._value_checks import bad_values
from opforge.verify.hosts import hosts
from opforge.verify.sanitize import sanitized

pytestmark = [pytest.mark.compiler, pytest.mark.planted]


@pytest.fixture(scope="module")
def numpy():
    return hosts(["numpy"])[0]


def failed(rows):
    return [row for row in rows if not row.passed]


def test_strides_are_not_honoured(planted, numpy):
    rows = failed(operator_checks.values(planted["Blind"], numpy, 3, 0))
    assert {row.check for row in rows} == {"layouts"}
    assert any("x transposed" in row.case for row in rows)
    assert "dense arrays are right, so the strides of the transposed one are not honoured" in rows[0].detail


def test_every_index_is_taken_for_32_bits(planted, numpy):
    rows = failed(operator_checks.values(planted["Narrow"], numpy, 0, 0))
    assert {row.dtype for row in rows} == {"f32 i64", "f64 i64"}
    assert "max |error|" in rows[0].detail


def test_index_is_not_checked(planted):
    (row,) = failed(bad_values(planted["Trusting"], 0))
    assert re.search(r"with index\[\d\] = -?\d+ (the process ended by SIG|the reference refuses it)", row.detail)
    assert "a kernel checks the values of indices and reports a wrong one with context.fail(...)" in row.detail


def test_empty_tensors_are_refused(planted, numpy):
    rows = failed(operator_checks.drawn(planted["Hungry"], numpy, 8, 0))
    assert {"drawn, m empty [0, 17]".split(" [")[0]} <= {row.case.split(" [")[0] for row in rows}
    assert all("invalid configuration: 0 blocks" in row.detail for row in rows)


def test_input_is_written_by_a_kernel(planted, numpy):
    rows = failed(contracts.owned(planted["Greedy"], numpy, 0))
    assert "case vector: the call changed its input x; a kernel writes its outputs only" in rows[0].detail


def test_gradient_of_variadic_inputs(planted, numpy):
    rows = failed(gradient(planted["Gathered"], numpy, 0))
    assert len(rows) == 3, "each of the three tensors"
    assert all("it is 2 times what it should be" in row.detail for row in rows)


def test_library_of_other_sources(planted, tmp_path):
    operator = planted["Blind"]
    assert not failed(contracts.library(operator))
    source = operator.sources[0]
    text = source.read_text()
    try:
        source.write_text(text.replace("y[i] = x.data()[i];", "y[i] = T(2) * x.data()[i];"))
        (row,) = failed(contracts.library(operator))
    finally:
        source.write_text(text)
    assert "it was built from other sources" in row.detail
    assert "what is checked here is not what the files say; start a new process, or run opforge build" in row.detail


def test_library_of_another_abi(planted, monkeypatch):
    operator = planted["Blind"]
    loaded = library_for([operator])
    table = abi.Library.from_buffer_copy(abi.Library.from_address(loaded.table))
    table.abi = abi.ABI + 1
    other = replace(loaded, table=ctypes.addressof(table))
    monkeypatch.setattr(contracts, "library_for", lambda operators: other)
    (row,) = failed(contracts.library(operator))
    assert f"built for ABI {abi.ABI + 1}, this is {abi.ABI}; build it again" in row.detail


def place(operator, mark):
    """Where the marked line of the kernels stands."""
    source = operator.sources[0]
    number = next(k for k, line in enumerate(source.read_text().splitlines(), 1) if mark in line)
    return f"{source}:{number}"


@pytest.mark.parametrize(
    ("name", "sanitizer", "mark", "words"),
    [
        ("Beyond", "address", "// one too many", ("heap-buffer-overflow", "compare indices with shape()")),
        ("Overflowing", "undefined", "// 32 bits", ("signed integer overflow", "compute sizes and offsets in int64_t")),
        ("Racing", "thread", "// shared", ("data race", "give each its own")),
    ],
)
def test_sanitizer_names_the_line(planted, name, sanitizer, mark, words):
    rows = failed(sanitized(planted[name], [sanitizer], 0))
    assert rows and all(row.check == f"sanitize {sanitizer}" for row in rows)
    assert any(f"at {place(planted[name], mark)}" in row.detail for row in rows), rows
    assert all(any(word in row.detail for row in rows) for word in words)


def test_sanitizers_pass_a_right_kernel(planted):
    assert not failed(sanitized(planted["Gathered"], ["undefined"], 0))


def test_smallest_failing_call_is_a_program(planted, tmp_path):
    report = check(planted["Hungry"], "quick", properties=True, seed=3, isolate=False)
    (row,) = [row for row in report.failures if row.check == "property"]
    assert "seed 3; to see it:" in row.detail
    program = row.detail.split("to see it:\n")[1]
    assert re.search(r"np\.zeros\(\((0, 0|0, 1|1, 0)\)", program), "shrunk to the smallest"
    (tmp_path / "see.py").write_text("\n".join(line[4:] for line in program.splitlines()))
    done = subprocess.run([sys.executable, tmp_path / "see.py"], capture_output=True, text=True, check=False)
    assert "invalid configuration: 0 blocks" in done.stderr
    again = check(planted["Hungry"], "quick", properties=True, seed=3, isolate=False)
    assert [r.detail for r in again.failures if r.check == "property"] == [row.detail]
