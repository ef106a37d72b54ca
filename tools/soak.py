"""The long runs of `make soak`, one part after the other; all parts run, and a table at the end says how each ended.

Every part writes build/soak/PART.log; build/soak/summary.txt is the table.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "soak"
REPORT = ROOT / "build" / "test-report.xml"
WORTH_SAYING = re.compile(r"FAILED|: ok|: equal|^\d+ cases|built in|\d+ passed|\d+ failed|differ")
"""Lines of a part that the table repeats."""


@dataclass(frozen=True)
class Part:
    """One of the long runs.

    Attributes:
        name: as the command line and the log have it.
        command: arguments of Python.
        needs: the part that must have gone well before.
        environment: variables beside those of this process.
    """

    name: str
    command: list[str]
    needs: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def drawing_tests() -> list[str]:
    """Return the test files that draw or run more when they soak; the others are `make test`'s."""
    files = sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
    return [str(f.relative_to(ROOT)) for f in files if "from tests.soak import" in f.read_text(encoding="utf-8")]


def parts(options: argparse.Namespace) -> list[Part]:
    """Return all parts in their order."""
    soak = {"OPFORGE_SOAK": str(options.factor), "OPFORGE_FORBID_UNSTEADY": "1"}
    full = [] if options.small else ["--full"]
    return [
        Part("tests", ["tools/run_tests.py", *drawing_tests()], environment=soak),
        Part("seeds", ["tools/corpus.py"]),
        Part("fuzz", ["tools/fuzz.py", "--seconds", str(options.fuzz_seconds)], needs="seeds"),
        Part("corpus", ["tools/corpus.py", *full]),
        Part("sanitize", ["tools/sanitize.py", *full, "--runs", str(options.shared_runs)], needs="corpus"),
        Part("cross", ["tools/cross.py", *full], needs="corpus"),
    ]


def run(part: Part) -> tuple[int, float, list[str]]:
    """Run one part; return its status, its seconds and the lines worth saying."""
    start, said = time.monotonic(), []
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **part.environment}
    with (FOLDER / f"{part.name}.log").open("w", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, *part.command],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert child.stdout is not None
        for line in child.stdout:
            log.write(line)
            log.flush()
            if WORTH_SAYING.search(line):
                said.append(line.strip())
                print(f"  {line.rstrip()}", flush=True)
        status = child.wait()
    return status, time.monotonic() - start, said


def memory() -> Iterator[str]:
    """Yield what the tests of memory found, from the report that pytest wrote."""
    if REPORT.exists():
        for case in ElementTree.parse(REPORT).iter("testcase"):
            for found in case.iter("property"):
                if found.get("name") == "memory":
                    yield f"{case.get('name')}: {found.get('value')}"


def main() -> int:
    """Run the parts; 0 when all went well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="tests, seeds, fuzz, corpus, sanitize, cross (all when none is given)")
    parser.add_argument("--factor", type=int, default=50, help="how many times more the tests draw and run")
    parser.add_argument("--fuzz-seconds", type=int, default=600, help="of each fuzzer")
    parser.add_argument("--shared-runs", type=int, default=10_000, help="of sessions that 8 callers share")
    parser.add_argument("--small", action="store_true", help="the corpus of `make sanitize`, not all of onnx's tests")
    options = parser.parse_args()
    every = parts(options)
    unknown = sorted(set(options.parts) - {part.name for part in every})
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows, ended = [], {}
    for part in every:
        if options.parts and part.name not in options.parts:
            continue
        print(f"soak: {part.name}", flush=True)
        if ended.get(part.needs, 0):
            ended[part.name] = 1
            rows.append(f"{part.name:9} NOT RUN, since '{part.needs}' failed")
            continue
        status, seconds, said = run(part)
        ended[part.name] = status
        rows.append(f"{part.name:9} {'ok' if status == 0 else f'FAILED ({status})'} in {seconds:.0f} s")
        rows += [f"          {line}" for line in [*said, *(memory() if part.name == "tests" else ())]]
    summary = "\n".join(rows) + "\n"
    (FOLDER / "summary.txt").write_text(summary, encoding="utf-8")
    print(f"\n{summary}", end="")
    failed = [name for name, status in ended.items() if status]
    print(f"make soak: FAILED: {', '.join(failed)} (see build/soak)" if failed else "make soak: all well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
