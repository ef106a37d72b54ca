"""`opforge check --sanitize`: the kernel library built instrumented, its cases in a process of their own, the lines.

Only the operator's library is instrumented, so reports that name no line of it are no business of the author's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opforge._paths import include_dir
from opforge.build.builder import build_library
from opforge.build.plan import LibraryPlan, plan_library
from opforge.build.sanitizers import FRAME, fixed_addresses, preload
from opforge.build.toolchain import find_compiler
from opforge.codegen import Unit
from opforge.errors import ArgumentError
from opforge.schema import Operator
from opforge.verify._rows import Row
from opforge.verify.isolated import Outcome, run_isolated

__all__ = ["SANITIZERS", "Report", "parse_reports", "sanitized"]

_LOOP = """
#include <algorithm>
#include <thread>
#include <vector>
#include "opforge/abi.h"

// Every chunk on a thread that nothing orders against the others but its beginning and its end.
extern "C" __attribute__((visibility("default"))) opforge_status opforge_check_parallel_for(
    opforge_context*, int64_t n, int64_t grain, opforge_range_fn body, void* user) {
  const int64_t step = std::max<int64_t>(grain, (n + 3) / 4);
  std::vector<std::thread> threads;
  for (int64_t begin = 0; begin < n; begin += step) {
    threads.emplace_back(body, user, begin, std::min(begin + step, n));
  }
  for (std::thread& thread : threads) thread.join();
  return OPFORGE_STATUS_OK;
}
"""
_SHOWN = 8
_DRAWN = 8


@dataclass(frozen=True)
class Sanitizer:
    """One kind: the job that shows its faults, its options, and how its reports begin."""

    job: str
    environment: dict[str, str]
    heads: re.Pattern[str]


SANITIZERS = {
    "address": Sanitizer(
        "cases",
        {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "PYTHONMALLOC": "malloc"},
        re.compile(r"ERROR: AddressSanitizer: (?P<what>[\w-]+).*"),
    ),
    "undefined": Sanitizer(
        "cases",
        {"UBSAN_OPTIONS": "print_stacktrace=0"},
        re.compile(r"^(?P<file>\S+?):(?P<line>\d+):\d+: runtime error: (?P<what>.*)$"),
    ),
    "thread": Sanitizer(
        "threads",
        {"TSAN_OPTIONS": "halt_on_error=0:exitcode=0:report_signal_unsafe=0"},
        re.compile(r"WARNING: ThreadSanitizer: (?P<what>[\w -]+?) \(pid.*"),
    ),
}
_HINTS = {
    "heap-buffer-overflow": "the kernel reads or writes beyond a tensor; compare indices with shape()",
    "stack-buffer-overflow": "a local array is too small for these sizes",
    "heap-use-after-free": "memory of one call is used in another; keep no pointers between calls",
    "data race": "chunks of parallel_for, or calls, write the same memory; give each its own",
    "signed integer overflow": "compute sizes and offsets in int64_t",
    "division by zero": "handle the empty tensor before it divides",
}


@dataclass(frozen=True)
class Report:
    """What a sanitizer said: kind, place in the author's source, and the call that was under way."""

    what: str
    place: str
    case: str
    dtype: str


def sanitized(operator: Operator, names: Sequence[str], seed: int) -> Iterator[Row]:
    """Build the operator's library with each sanitizer, run the cases, and give one row per fault.

    Raises:
        ArgumentError: there is no such sanitizer.
        ToolchainError: no compiler, or it has no runtime of the sanitizer.
        UnsupportedError: another process cannot declare the operator.
    """
    for name in names:
        if name not in SANITIZERS:
            raise ArgumentError(
                "there is no such sanitizer", where="check", expected=", ".join(SANITIZERS), got=repr(name)
            )
        yield from _one(operator, name, SANITIZERS[name], seed)


def _one(operator: Operator, name: str, sanitizer: Sanitizer, seed: int) -> Iterator[Row]:
    compiler = find_compiler()
    environment = {"LD_PRELOAD": preload(compiler, name), **sanitizer.environment}
    plan = plan_library([operator])
    library = build_library(plan, compiler=compiler, sanitize=name, extra=(Unit("check_loop.cc", _LOOP),))
    outcome = run_isolated(
        operator,
        sanitizer.job,
        seed,
        drawn=_DRAWN,
        library=library,
        environment=environment,
        prefix=fixed_addresses(),
    )
    reports = parse_reports(outcome, sanitizer, _sources(plan))
    check = f"sanitize {name}"
    for report in reports[:_SHOWN]:
        hint = next((f"; {text}" for word, text in _HINTS.items() if word in report.what), "")
        yield Row(check, report.case, "numpy", report.dtype, False, f"{report.what} at {report.place}{hint}")
    if outcome.code and not reports:
        words = "\n".join(outcome.errors.strip().splitlines()[-12:])
        last = outcome.last
        detail = f"the instrumented process ended by {outcome.ending}" + (f":\n{words}" if words else "")
        if not outcome.events:  # clang 14's runtime of threads ends a process that loads it first
            detail += f"; it never came to a call, so the runtime of {compiler} does not serve here: try CXX=g++"
        yield Row(check, str(last.get("case", "")), "numpy", str(last.get("dtype", "")), False, detail)
    elif not reports:
        calls = sum(event["event"] == "call" for event in outcome.events)
        yield Row(check, f"{calls} calls", "numpy", "", True)


def parse_reports(outcome: Outcome, sanitizer: Sanitizer, sources: Sequence[Path]) -> list[Report]:
    """Read the reports that name a line of ``sources`` (files, or folders that hold them), each place once."""
    found: dict[tuple[str, str], Report] = {}
    for event, text in outcome.words:
        lines = text.splitlines()
        for number, line in enumerate(lines):
            head = sanitizer.heads.search(line)
            if head is None:
                continue
            fields = head.groupdict()
            if "file" in fields:
                place = f"{fields['file']}:{fields['line']}" if _is_authors(Path(fields["file"]), sources) else ""
            else:
                place = _first_place(lines[number + 1 :], sanitizer, sources)
            what = " ".join(fields["what"].split())
            if place:
                found.setdefault(
                    (what.split(":")[0], place), Report(what, place, event.get("case", ""), event.get("dtype", ""))
                )
    return list(found.values())


def _first_place(lines: Sequence[str], sanitizer: Sanitizer, sources: Sequence[Path]) -> str:
    """The first frame in the author's files, before the next report begins."""
    for line in lines:
        if sanitizer.heads.search(line):
            break
        frame = FRAME.match(line)
        if frame and _is_authors(Path(frame["file"]), sources):
            return (
                f"{frame['file']}:{frame['line']} in {frame['function'].split('(')[0].removeprefix('opforge::Status ')}"
            )
    return ""


def _is_authors(file: Path, sources: Sequence[Path]) -> bool:
    if file.is_relative_to(include_dir()):
        return False
    return any(file == source or file.is_relative_to(source) for source in sources)


def _sources(plan: LibraryPlan) -> list[Path]:
    """The folders of the kernels' sources; headers beside them are the author's too."""
    folders = [source.resolve().parent for operator in plan.operators for source in operator.sources]
    return list(dict.fromkeys(folders))
