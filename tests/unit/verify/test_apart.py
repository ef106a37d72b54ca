"""A kernel that ends its process is a finding of `check`, whatever was imported before and wherever it is declared."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

import opforge as of
from opforge.verify import check
from tests.notices import without_notices
from tests.unit.verify.crashing import ABORT, DECLARATION, FAR, HANG, run, start, write
from tests.unit.verify.faulty import forget

pytestmark = pytest.mark.compiler

_SHOW = """
for row in report.rows:
    if row.check == "process":
        print(row.case, row.host, row.dtype, row.detail)
print(report.summary())
"""


@pytest.fixture
def declared(tmp_path):
    """Declare the operator with a fault; it is forgotten afterwards."""
    made = []

    def declare(fault):
        made.extend(of.load(write(tmp_path / "wild", fault)))
        return made[-1]

    yield declare
    for operator in made:
        forget(operator)


def test_an_abort_is_a_row_with_the_call_and_its_words(declared):
    report = check(declared(ABORT), "quick", seed=4)
    (row,) = report.failures
    assert (row.check, row.case, row.host, row.dtype) == ("process", "few", "numpy", "f32")
    assert "local.crash::Wild CRASHED the process (SIGABRT) during 'values': memory beyond a tensor" in row.detail
    assert "  got: the kernel gives up\n" in row.detail
    assert "op.py:Wild --host numpy --level quick --seed 4\n" in row.detail, "how to see it again"
    assert [row.check for row in report.rows[:-1]] == ["schema"] * 4, "what was found before stays"


def test_the_authors_errors_name_their_line(declared, tmp_path):
    operator = declared("")
    assert check(operator, "quick").passed
    (tmp_path / "wild" / "cases.py").write_text("CASES = [1 / 0]\n")
    (row,) = check(operator, "quick").failures
    assert (row.check, row.case) == ("schema", "cases")
    assert "ZeroDivisionError" in row.detail and "cases.py:1" in row.detail
    other = DECLARATION.replace("[n]) ->", "[rows]) ->").replace("(y: T[n]", "(y: T[rows]")
    assert len(other) != len(DECLARATION), "Python takes a file of the same second and size for the one it compiled"
    (tmp_path / "wild" / "op.py").write_text(other)
    (tmp_path / "wild" / "cases.py").write_text('CASES = [{"name": "one", "inputs": {"x": {"shape": [2]}}}]\n')
    report = check(operator, "quick")
    (note,) = [row for row in report.rows if row.check == "process"]
    assert note.passed and "start a new process" in note.detail, "another declaration is not checked in its place"


@pytest.mark.torch
def test_a_script_that_has_imported_a_framework(tmp_path):
    # No guard, a framework with threads, and work after the check: none of it happens twice.
    text = "import torch\ntorch.ones(300, 300) @ torch.ones(300, 300)\n" + DECLARATION
    text += f'print("once")\nreport = of.check(wild, "quick", hosts=["numpy", "torch"])\n{_SHOW}'
    write(tmp_path, FAR, text, "script.py")
    code, out, err = run(tmp_path, "script.py")
    assert (code, err) == (0, "")
    first, found, again, to_do, summary = out.splitlines()
    assert first == "once"
    assert found.startswith("few numpy f32 local.crash::Wild CRASHED the process (SIGSEGV) during 'values': a kernel")
    assert again == "  to reproduce: opforge check script.py:Wild --host numpy --level quick --seed 0"
    assert to_do.endswith("--sanitize address names the line")
    assert summary == "local.crash::Wild: 1 of 5 checks FAILED (seed 0)"


def test_what_no_other_process_can_declare_is_tried_in_a_fork(tmp_path):
    # As in a notebook: the source is no file's.
    write(tmp_path)
    place = f'exec(compile({DECLARATION!r}.replace("cpu.cc", {str(tmp_path / "cpu.cc")!r}), "<cell 1>", "exec"))\n'
    cases = "from opforge.verify.cases import cases_of, case_of, give_cases\nimport cases\n"
    cases += "give_cases(wild, [case_of(wild, row) for row in cases.CASES], {})\n"
    (tmp_path / "cell.py").write_text(f'{place}{cases}report = of.check(wild, "quick")\n{_SHOW}')
    code, out, err = run(tmp_path, "cell.py")
    assert (code, err) == (0, "")
    assert "few numpy f32 local.crash::Wild CRASHED the process (SIGSEGV) during 'values'" in out
    assert "  to reproduce: move the declaration to a .py file" in out


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("group", [False, True], ids=["notebook", "terminal"])
def test_an_interrupt_ends_both_processes(tmp_path, group):
    # A notebook interrupts the kernel alone, a terminal every process of the group.
    write(tmp_path / "slow", f'std::fclose(std::fopen("{tmp_path}/called", "w")); {HANG}')
    process = start(tmp_path, "-m", "opforge", "check", "slow", "--level", "quick", start_new_session=True)
    while not (tmp_path / "called").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    if group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out, without_notices(err).strip()) == (130, "", "interrupted")
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(p)]
    sessions = [p for p in Path("/proc").glob("[0-9]*/stat") if _session(p) == process.pid]
    assert not left and not sessions, "the process that the check ran in is gone"


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _session(path):
    words = _read(path).rpartition(b")")[2].split()
    return int(words[3]) if len(words) > 3 and words[0] != b"Z" else -1


def test_the_process_says_nothing_that_is_not_asked_for(tmp_path):
    text = DECLARATION.replace("def same(x):", 'def same(x):\n    print("from the reference")')
    write(tmp_path / "wild", "", text)
    code, out, err = run(tmp_path, "-m", "opforge", "check", "wild", "--level", "quick", "--json")
    assert code == 0, err
    assert out.startswith("{") and "from the reference" not in out
    assert "from the reference" in err, "an author finds what they print"
    assert sys.flags.dev_mode or "Warning" not in err
