"""What CI says where something fails: the last 2,000 characters of its output name it, with its words."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.last_words import LIMIT, MARK, of_log, of_reports

ROOT = Path(__file__).resolve().parents[2]
SEEN = 2000
NOISE = "\n".join(
    f"[{k}/238] Building CXX object runtime/CMakeFiles/opforge.dir/kernels/ops/{k}.cpp.o" for k in range(400)
)
LOGS = {
    "compiler": (
        f"{NOISE}\nFAILED: runtime/CMakeFiles/opforge.dir/session/model.cpp.o\n/usr/bin/c++ {'-I/include ' * 300}\n"
        f"/src/runtime/session/model.cpp:31:7: error: 'Modle' does not name a type; did you mean 'Model'?\n{NOISE}\n"
        "ninja: build stopped: subcommand failed.\nmake: *** [Makefile:57: build/stamps/native] Error 1",
        ["model.cpp:31:7: error: 'Modle' does not name a type", "build stopped", "build/stamps/native"],
    ),
    "sanitizer": (
        f"{NOISE}\nloader_fuzz: FAILED; #140923 DONE\n==77==ERROR: AddressSanitizer: heap-buffer-overflow on 0x602\n"
        "    #0 0x55d1 in opforge::read_table runtime/format/reader.cpp:88:3\n    #1 0x55d2 in main fuzz.cpp:9\n"
        f"SUMMARY: AddressSanitizer: heap-buffer-overflow reader.cpp:88:3 in opforge::read_table\n"
        f"crash-4a (base64 of zlib): {'QUJD' * 1900}\nmake: *** [Makefile:118: fuzz] Error 1",
        ["loader_fuzz: FAILED", "AddressSanitizer: heap-buffer-overflow", "reader.cpp:88:3", "Makefile:118: fuzz"],
    ),
    "types": (
        f"All checks passed!\n{NOISE}\nsrc/opforge/api.py:12: error: Missing return statement  [return]\n"
        "Found 1 error in 1 file (checked 505 source files)\nmake: *** [Makefile:78: lint] Error 1",
        ["src/opforge/api.py:12: error: Missing return statement", "Makefile:78: lint"],
    ),
    "several runs of pytest": (
        "onnxruntime 1.20.1\n_____ test_shapes _____\n    def test_shapes():\n>       assert rows == 3\n"
        "E       assert 2 == 3\ntests/unit/onnxruntime/test_x.py:7: AssertionError\n"
        "FAILED tests/unit/onnxruntime/test_x.py::test_shapes - assert 2\n"
        f"{NOISE}\nonnxruntime 1.32.0\n{'.' * 72} [100%]\nfailed with onnxruntime==1.20.1",
        ["test_x.py::test_shapes", "E       assert 2 == 3", "failed with onnxruntime==1.20.1"],
    ),
    "nothing that is known": (f"{NOISE}\nwhat it said was this", ["what it said was this"]),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_log_in_few_characters(kind):
    text, words = LOGS[kind]
    told = of_log(text)
    assert len(told) <= LIMIT
    for word in words:
        assert word in told, told


def test_failures_of_pytest_and_of_ctest(tmp_path):
    long = "\n".join(f"    assert table[{k}] == {k}" for k in range(200))
    (tmp_path / "test_three.py").write_text(
        "import pytest\n\n@pytest.fixture\ndef broken():\n    raise KeyError('no such table')\n\n"
        "def test_good():\n    pass\n\ndef test_sums():\n    assert 2 + 2 == 5, 'sums are wrong'\n\n"
        f"def test_setup(broken):\n    pass\n\ndef test_long():\n    table = [0] * 200\n{long}\n"
    )
    report = tmp_path / "report.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        f"--junitxml={report}",
    ]
    assert subprocess.run([*command, tmp_path], capture_output=True, check=False, cwd=tmp_path).returncode == 1
    other = tmp_path / "cpp.xml"
    other.write_text(
        '<testsuite><testcase name="pool_test" classname="pool_test" status="fail"><failure message=""/>'
        "<system-out>pool_test.cpp:71: 3 workers, expected 4</system-out></testcase>"
        '<testcase name="crew_test" classname="crew_test" status="run"/></testsuite>'
    )
    told = of_reports([other, report])
    assert len(told) <= LIMIT
    for word in ("pool_test.cpp:71: 3 workers, expected 4", "test_three.py::test_sums", "sums are wrong",
                 "test_three.py::test_setup", "no such table", "test_three.py::test_long"):  # fmt: skip
        assert word in told, told
    assert "test_good" not in told
    assert "crew_test" not in told
    assert of_reports([tmp_path / "none.xml"]) == ""
    # What make test ends with is what CI tells.
    assert of_log(f"{NOISE}\n{told}\nmake: *** [Makefile:73: test] Error 1").startswith(MARK)


_SUITE = """
import pathlib
import pytest

def met(name):
    path = pathlib.Path(__file__).with_name(name)
    seen = path.exists()
    path.touch()
    return seen

@pytest.mark.parametrize("k", range(COUNT))
def test_first_time(k):
    assert met(f"first{k}"), "the other was slow"

def test_wrong():
    assert GOOD, "sums are wrong"

def test_right():
    assert not met("right"), "what passed is not run again"
"""
_STEADY = """
import os, pathlib, sys
sys.path.insert(0, "tools")
import steady
root = pathlib.Path(sys.argv[1])
tests = steady.run(["-q", *sys.argv[2:]], environment=os.environ, root=root)
print("what run returned", tests.code, tests.unsteady, tests.failed)
"""


def steady(tmp_path, *, good, count=1, arguments=(), **environment):
    """Run a suite in which `count` tests pass the second time, and one passes where `good`."""
    (tmp_path / "test_suite.py").write_text(_SUITE.replace("COUNT", str(count)).replace("GOOD", str(good)))
    command = [sys.executable, "-c", _STEADY, tmp_path, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stdout.rpartition("what run returned ")[2]


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "two"])
def test_what_passes_alone_is_unsteady_and_told(tmp_path, arguments):
    said, ended = steady(tmp_path, good=True, arguments=arguments)
    assert ended.startswith("0 ('test_suite.py::test_first_time[0]',)")
    assert "\nunsteady (failed among the others, passed alone): test_suite.py::test_first_time[0]\n" in said
    assert "the other was slow" in said


def test_what_fails_twice_is_a_failure_beside_what_is_unsteady(tmp_path):
    _, ended = steady(tmp_path, good=False)
    assert ended.startswith("1 ('test_suite.py::test_first_time[0]',) what failed:")
    assert "test_wrong" in ended
    assert "test_first_time" not in ended.partition(MARK)[2]
    assert "test_right" not in ended


@pytest.mark.parametrize("count, environment", [(5, {}), (1, {"OPFORGE_FORBID_UNSTEADY": "1"})])
def test_where_many_fail_or_it_is_forbidden_nothing_is_run_again(tmp_path, count, environment):
    said, ended = steady(tmp_path, good=True, count=count, **environment)
    assert ended.startswith("1 () what failed:")
    assert "the other was slow" in ended
    assert "run again" not in said


def test_where_pytest_itself_ends_nothing_is_run_again(tmp_path):
    _, ended = steady(tmp_path, good=True, arguments=["--no-such-option"])
    assert ended.startswith("4 ()")


_MAKE = """
import sys, time
name = sys.argv[1]
print("\\n".join(f"{name}: line {k} of many that are of no interest" for k in range(300)), flush=True)
if name == "wrong":
    print("tests/test_x.py:3: error: the reason", flush=True)
    print("\\n".join(f"{name}: another {k}" for k in range(300)))
    sys.exit(2)
if name == "unsteady":
    print("unsteady (failed among the others, passed alone): tests/test_y.py::test_y")
if name == "slow":
    print("slow begins", flush=True)
    time.sleep(60)
"""


def ci(tmp_path, stages):
    """Start CI with stages of its own and with a program that stands for make."""
    (tmp_path / "make.py").write_text(_MAKE)
    code = (
        "import pathlib, sys; sys.path.insert(0, 'tools'); import ci\n"
        f"ci.LOGS = pathlib.Path({str(tmp_path / 'logs')!r})\n"
        f"sys.exit(ci.main({stages!r}, [sys.executable, {str(tmp_path / 'make.py')!r}]))"
    )
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_ci_ends_with_what_failed(tmp_path):
    process = ci(tmp_path, ((("one",),), (("wrong", "after"), ("beside",)), (("later",),)))
    said = process.communicate()[0]
    assert process.returncode == 1
    assert "make one          ok" in said
    assert "make beside       ok" in said
    assert "make after" not in said
    assert "make later" not in said
    assert said.count("wrong: line 299 of many") >= 1, "whole logs are printed too"
    end = said[-SEEN:]
    assert "make wrong FAILED" in end
    assert "tests/test_x.py:3: error: the reason" in end


def test_ci_names_unsteady_tests_at_its_end(tmp_path):
    process = ci(tmp_path, ((("unsteady",),), (("wrong",),)))
    end = process.communicate()[0][-SEEN:]
    assert "unsteady (failed among the others, passed alone): tests/test_y.py::test_y" in end
    assert "the reason" in end


def test_ci_that_goes_well_ends_with_a_table(tmp_path):
    process = ci(tmp_path, ((("one",), ("two", "three")),))
    said = process.communicate()[0]
    assert process.returncode == 0
    rows = said.splitlines()[-3:]
    assert sorted(row.split()[1] for row in rows) == ["one", "three", "two"]
    assert all(row.split()[2] == "ok" and row.endswith("s of CPU") for row in rows)


def test_ci_that_is_ended_says_where_it_was(tmp_path):
    process = ci(tmp_path, ((("one",),), (("slow",),)))
    log = tmp_path / "logs" / "slow.log"
    while process.poll() is None and not (log.exists() and "slow begins" in log.read_text()):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[0]
    assert process.returncode == 128 + signal.SIGTERM
    assert "make slow had not ended" in said[-SEEN:]
    assert "slow begins" in said[-SEEN:]
    assert said.endswith("ended by SIGTERM\n")
    while any(str(tmp_path / "make.py") in _words(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
        time.sleep(0.02)  # what it had started ends too


def _words(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
