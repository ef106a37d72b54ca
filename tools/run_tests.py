"""Run all tests and say at the end which are unsteady, what was left out and why, and last what failed.

System packages are never installed here. What a test needs and does not find is listed; with
OPFORGE_FORBID_OMISSIONS=1 (CI) an omission is a failure, but for the tests on a GPU: no package brings one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import steady
from last_words import MARK, of_reports

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "build" / "test-report.xml"
CPP_REPORT = ROOT / "build" / "cpp-test-report.xml"


def main(arguments: list[str]) -> int:
    """Run the C++ tests, then pytest on all cores; print the unsteady tests, the omissions and the failures."""
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    REPORT.parent.mkdir(exist_ok=True)
    for report in (REPORT, CPP_REPORT):
        report.unlink(missing_ok=True)
    cpp = 0
    if not arguments:
        ctest = [scripts / "ctest", "--test-dir", "build/dev", "--output-on-failure", "-j2"]
        told = ["--output-junit", CPP_REPORT]
        cpp = subprocess.run([*ctest, *told], cwd=ROOT, env=environment, check=False).returncode
    command = ["-n", "2", "--dist", "loadgroup", "--durations=15", *arguments]
    tests = steady.run(command, report=REPORT, environment=environment)
    omitted = omissions()
    wrong = []
    if omitted:
        print("\nleft out (what it needs is not on this machine):")
        for reason, count in omitted.most_common():
            print(f"  {count:4d} tests: {reason}")
        if os.environ.get("OPFORGE_FORBID_OMISSIONS") == "1" and not all(r.startswith("no GPU") for r in omitted):
            wrong.append("OPFORGE_FORBID_OMISSIONS=1: an omission is a failure")
    if shutil.which("clang++-14") is None and shutil.which("clang++") is None:
        print(
            "note: clang++ is not installed; `make fuzz` needs it "
            "(Debian: clang-14 libclang-rt-14-dev libfuzzer-14-dev)"
        )
    if tests.code and not tests.failed:
        wrong.append(f"pytest ended with {tests.code}; what it said is above")
    cpp_failed = of_reports([CPP_REPORT])
    if cpp and not cpp_failed:
        wrong.append(f"ctest ended with {cpp}; what it said is above")
    failed = [text.removeprefix(MARK).strip() for text in (cpp_failed, tests.failed)]
    if wrong or any(failed):
        print("\n".join(["", MARK, *filter(None, failed), *wrong]), flush=True)
    return tests.code or cpp or bool(wrong)


def omissions() -> Counter[str]:
    """Count skipped tests by their reason, from the report that pytest wrote."""
    found: Counter[str] = Counter()
    if REPORT.exists():
        for skipped in ElementTree.parse(REPORT).iter("skipped"):
            found[skipped.get("message") or "no reason given"] += 1
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
