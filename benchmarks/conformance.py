"""Run onnx's own backend tests through opforge and ONNX Runtime, and count what passes.

`python -m benchmarks.conformance` prints both counts, and ours per operator. `--write` keeps the list of the tests that
pass (tests/data/conformance/passing.txt), which the test suite holds, and the tables of docs/design/conformance.md;
`--markdown` prints these tables; `--json` writes every outcome.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import IO

from benchmarks._backend_tests import ENGINES, GROUPS, Outcome, cases, run_case
from opforge.cli._output import table

ROOT = Path(__file__).resolve().parent.parent
PASSING = ROOT / "tests" / "data" / "conformance" / "passing.txt"
PAGE = ROOT / "docs" / "design" / "conformance.md"
PEER = PASSING.with_name("onnxruntime.json")
"""What the peer passed when it was run last."""
COMMAND = ("-m", "benchmarks.conformance", "--worker")
"""What a process for tests runs; the engine follows."""
_TABLES = re.compile(r"(<!-- conformance -->\n).*?(<!-- end of conformance -->)", re.DOTALL)
SECONDS = 300.0
"""A test that takes longer counts as failed."""


def run(names: Iterable[tuple[str, str]], engine: str) -> Iterator[Outcome]:
    """Run tests in a process of its own; a test that ends the process is an outcome, and the rest go on.

    Args:
        names: (group, test) pairs.
        engine: one of `ENGINES`.
    """
    left = list(names)
    while left:
        worker = subprocess.Popen(
            [sys.executable, *COMMAND, engine],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("\n".join(f"{group} {name}" for group, name in left) + "\n")
        worker.stdin.close()
        lines: Queue[str] = Queue()
        Thread(target=_read, args=(worker.stdout, lines), daemon=True).start()
        late = False
        while True:
            try:
                line = lines.get(timeout=SECONDS)
            except Empty:
                late = True
                worker.kill()
                break
            if not line:
                break
            if line.startswith("{"):
                yield Outcome(**json.loads(line))
                left.pop(0)
        worker.wait()
        if left:
            group, name = left.pop(0)
            ending = f"no result after {SECONDS} s" if late else f"the process ended with {worker.returncode}"
            yield Outcome(group, name, "", ending)


def _read(stream: IO[str], lines: Queue[str]) -> None:
    """Hand on every line, and an empty one at the end."""
    for line in stream:
        lines.put(line)
    lines.put("")


def _worker(engine: str) -> None:
    out = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin.read().splitlines():
        group, name = line.split(" ", 1)
        print(json.dumps(vars(run_case(group, name, engine))), file=out, flush=True)


def passing() -> list[tuple[str, str]]:
    """Return the (group, test) pairs that must pass."""
    return [(g, n) for g, n in (line.split() for line in PASSING.read_text().splitlines() if line[:1] != "#")]


def main() -> int:
    """Count; 0 when every test of the kept list passed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument("parts", nargs="*", help="parts of test names; all tests when none is given")
    parser.add_argument("--group", choices=GROUPS, action="append", help="groups (all when none is given)")
    parser.add_argument("--engine", choices=list(ENGINES), action="append", help="engines (both when none is given)")
    parser.add_argument("--failures", action="store_true", help="print why tests of ours failed")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    parser.add_argument("--write", action="store_true", help="keep the list of passing tests, and the page's tables")
    parser.add_argument("--markdown", action="store_true", help="print the tables of the page")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _worker(options.worker)
        return 0
    groups = options.group or GROUPS
    names = [(g, n) for g in groups for n in cases(g) if not options.parts or any(p in n for p in options.parts)]
    outcomes = {engine: list(run(names, engine)) for engine in options.engine or ENGINES}
    for engine, found in outcomes.items():
        counts = Counter((o.group, o.passed) for o in found)
        rows = [(g, counts[g, True], counts[g, True] + counts[g, False]) for g in groups]
        table(f"{engine}: tests passed", ("group", "passed", "of"), rows)
    ours = outcomes.get("opforge", [])
    if ours:
        _print_operators(ours)
    if options.failures:
        print("\n".join(f"{o.group} {o.name}: {o.failure}" for o in ours if not o.passed))
    if options.json:
        options.json.write_text(
            json.dumps({e: [{**vars(o), "passed": o.passed} for o in f] for e, f in outcomes.items()}, indent=0) + "\n"
        )
    whole = not options.parts and not options.group
    if options.markdown and ours:
        print(markdown(ours))
    if options.write and whole and "onnxruntime" in outcomes:
        _keep_peer(outcomes["onnxruntime"])
    if options.write and whole and ours:
        PAGE.write_text(_TABLES.sub(lambda m: f"{m[1]}{markdown(ours)}{m[2]}", PAGE.read_text()))
        PASSING.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{o.group} {o.name}" for o in ours if o.passed]
        head = "# Tests of onnx's backend suite that pass; kept by `python -m benchmarks.conformance --write`.\n"
        PASSING.write_text(head + "\n".join(lines) + "\n")
    if not PASSING.is_file() or not ours:
        return 0
    good = {(o.group, o.name) for o in ours if o.passed}
    lost = [p for p in passing() if p in set(names) and p not in good]
    for group, name in lost:
        print(f"lost: {group} {name}")
    return 1 if lost else 0


def _by_operator(outcomes: list[Outcome]) -> tuple[list[str], list[tuple[str, int, int]]]:
    """Return the operators of which every node test passes, and (name, passed, of) of the others."""
    found: dict[str, list[bool]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.group == "node":
            found[outcome.operator or "(none)"].append(outcome.passed)
    whole = sorted(name for name, passed in found.items() if all(passed))
    return whole, [(n, sum(p), len(p)) for n, p in sorted(found.items()) if not all(p)]


def _print_operators(outcomes: list[Outcome]) -> None:
    """Print, per operator, how many of its node tests pass."""
    whole, rows = _by_operator(outcomes)
    print(f"\nevery test passes ({len(whole)} operators): {', '.join(whole)}")
    table("operators with tests that do not pass", ("operator", "passed", "of"), rows)


def _keep_peer(outcomes: list[Outcome]) -> None:
    counts = Counter(o.group for o in outcomes if o.passed)
    kept = {"version": version("onnxruntime"), "passed": {g: counts[g] for g in GROUPS}}
    PEER.write_text(json.dumps(kept, indent=2) + "\n")


def markdown(ours: list[Outcome]) -> str:
    """Write what passes as tables: by group beside the peer, and by operator."""
    peer = json.loads(PEER.read_text())
    passed, total = Counter(o.group for o in ours if o.passed), Counter(o.group for o in ours)
    lines = [f"| group | opforge | ONNX Runtime {peer['version']} | tests |", "|---|---|---|---|"]
    lines += [f"| {g} | {passed[g]} | {peer['passed'][g]} | {total[g]} |" for g in GROUPS if total[g]]
    whole, rows = _by_operator(ours)
    lines += ["", f"Every node test passes of {len(whole)} operators: {', '.join(whole)}.", ""]
    lines += ["| operator | passed | of |", "|---|---|---|"]
    lines += [f"| {name} | {count} | {of} |" for name, count, of in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
