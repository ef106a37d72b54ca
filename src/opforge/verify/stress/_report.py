"""What a stress run found: verdicts in words, figures, and the files that tell them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opforge._files import whole_file
from opforge.verify._signals import CAUSES, how_to_find
from opforge.verify.stress._memory import Growth, growth
from opforge.verify.stress._spec import Spec
from opforge.verify.stress._watch import Seen

__all__ = ["StressReport", "Verdict", "judge", "write"]

_MIB = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """One question and its answer in words; ``passed`` is None where nothing can be said."""

    check: str
    passed: bool | None
    words: str
    detail: str = ""


@dataclass
class StressReport:
    """The result of `opforge.verify.stress.stress`; truthy when nothing failed.

    Attributes:
        spec: what was asked for.
        verdicts: the answers.
        figures: everything that was measured, as plain data.
        failures: the first failure of each kind, with the file of its inputs and how to run it again.
        interrupted: the signal that ended the run early; "" where none did.
    """

    spec: Spec
    verdicts: list[Verdict] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    interrupted: str = ""

    @property
    def passed(self) -> bool:
        """Whether no verdict is bad and something was run."""
        return bool(self.figures.get("runs")) and all(v.passed is not False for v in self.verdicts)

    def __bool__(self) -> bool:
        return self.passed

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        spec = self.spec
        return {
            "stress": spec.target,
            "engine": spec.engine if spec.is_model else None,
            "host": None if spec.is_model else spec.host,
            "passed": self.passed,
            "interrupted": self.interrupted,
            "threads": spec.threads,
            "run_threads": spec.run_threads,
            "seed": spec.seed,
            "verdicts": [vars(verdict) for verdict in self.verdicts],
            **self.figures,
            "failures": self.failures,
        }

    def text(self) -> str:
        """Return the report for people."""
        spec, figures = self.spec, self.figures
        by = spec.engine if spec.is_model else spec.host
        lines = [f"stress of {spec.target} in {by}: {'passed' if self.passed else 'FAILED'}"]
        seconds = figures.get("seconds", {})
        if figures.get("runs"):
            lines.append(
                f"{figures['runs']} calls of {len(figures['cases'])} cases in {sum(seconds.values()):.1f} s: "
                f"{figures['calls_per_second']:.4g} a second with {spec.threads} callers"
                + (f"; ended early by {self.interrupted}" if self.interrupted else "")
            )
        for name, part in (("alone", figures.get("alone")), ("together", figures.get("together"))):
            if part and part["latency_ms"]:
                shown = ", ".join(f"{key} {value:.4g}" for key, value in part["latency_ms"].items())
                lines.append(f"latency of one call {name}, ms: {shown}")
        mark = {True: "ok", False: "FAILED", None: "?"}
        lines += [f"{mark[v.passed]:6} {v.words}" + (f": {v.detail}" if v.detail else "") for v in self.verdicts]
        for failure in self.failures:
            lines += ["", f"first {failure['kind']}, case {failure['case']}: {failure['text']}"]
            if failure["npz"]:
                lines += [f"its inputs: {failure['npz']}", "to repeat it:", *_indented(failure["reproduce"])]
            if failure["trace"]:
                lines += ["where:", *_indented(failure["trace"])]
        lines += [f"left out {name}: {why}" for name, why in figures.get("left_out", {}).items()]
        return "\n".join(lines) + "\n"


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.rstrip().splitlines()]


def judge(spec: Spec, seen: Seen) -> StressReport:
    """Turn what the watcher saw into verdicts."""
    done = seen.messages.get("done", {})
    report = StressReport(spec, interrupted=seen.interrupted)
    report.figures = _figures(seen, done)
    memory = growth([row[1] for row in seen.memory], spec.allowed_growth, seen.calls)
    report.figures["memory"] |= memory.as_dict()
    report.verdicts = [
        _process(spec, seen),
        _errors(seen, done),
        _repeatable(spec, done),
        *([_thread_safe(spec, done)] if spec.threads > 1 else []),
        _memory(seen, memory),
        _inputs(done),
    ]
    report.failures = _failures(seen, done)
    return report


def _figures(seen: Seen, done: Mapping[str, Any]) -> dict[str, Any]:
    alone, together = done.get("alone", {}), done.get("together", {})
    progress = seen.messages.get("progress", {})
    runs = alone.get("runs", 0) + together.get("runs", 0) if done else progress.get("runs", 0)
    seconds = done.get("seconds", {"alone": progress.get("at", 0.0), "together": 0.0})
    part, duration = (together, seconds["together"]) if together.get("runs") else (alone, seconds["alone"])
    cases = []
    for index in seen.messages.get("ready", {}).get("order", []):
        row: dict[str, Any] = {"name": seen.jobs[index]}
        for name, summary in (("alone", alone), ("together", together)):
            found = summary.get("cases", {}).get(str(index))
            if found:
                row[name] = {"runs": found["runs"], **{f"{k}_ms": found[k] for k in ("p50", "p99", "max")}}
        differing = sum(s.get("mismatches", {}).get(str(index), 0) for s in (alone, together))
        cases.append({**row, "mismatches": differing})
    return {
        "runs": runs,
        "seconds": seconds,
        "calls_per_second": (part.get("runs", runs) / duration) if duration else 0.0,
        "load_seconds": seen.messages.get("loaded", {}).get("seconds"),
        "alone": {k: alone.get(k, {}) for k in ("runs", "latency_ms", "steps_ms")} if alone else None,
        "together": {k: together.get(k, {}) for k in ("runs", "latency_ms", "steps_ms")} if together else None,
        "errors": {**alone.get("errors", {}), **together.get("errors", {})},
        "cases": cases,
        "rates": [list(row) for row in seen.rates],
        "memory": {"samples_bytes": [list(row) for row in seen.memory]},
        "left_out": seen.messages.get("ready", {}).get("left_out", {}),
    }


def _process(spec: Spec, seen: Seen) -> Verdict:
    if seen.ended == "crashed":
        first, *rest = seen.how.splitlines() or [""]
        cases = ", ".join(seen.jobs[job] for job in sorted(set(seen.flight)))
        while_in = [f"while it computed {cases}"] if cases else []
        causes = [CAUSES[first]] if first in CAUSES else []
        found = [] if spec.is_model else [how_to_find(spec.target)]
        trace = [] if cases else ["", *rest[-12:]]  # with a case, it stands beside the case's inputs
        detail = "\n".join(["; ".join([*while_in, *causes, *found]), *trace])
        return Verdict("process", False, f"CRASHED ({first})", detail)
    if seen.ended == "hung":
        return Verdict("process", False, "HUNG", "no call ended in time; it was stopped")
    if seen.ended == "stopped":
        return Verdict("process", None, "stopped before anything was run")
    return Verdict("process", True, "no crash")


def _errors(seen: Seen, done: Mapping[str, Any]) -> Verdict:
    if not done:
        count = seen.messages.get("progress", {}).get("errors", 0)
        return Verdict("errors", None if not count else False, f"{count} errors were counted until then")
    alone, together = (sum(done[part]["errors"].values()) for part in ("alone", "together"))
    if not alone + together:
        return Verdict("errors", True, "no errors")
    only = "; only while several callers ran" if not alone else ""
    words = done["together"]["errors"] | done["alone"]["errors"]
    most = max(words, key=lambda text: words[text])
    return Verdict("errors", False, f"{alone + together} ERRORS", f"{most}{only}")


def _repeatable(spec: Spec, done: Mapping[str, Any]) -> Verdict:
    if not spec.compare or not done:
        return Verdict("repeatable", None, "results were not compared")
    count = sum(done["alone"]["mismatches"].values()) + sum(done["again"]["mismatches"].values())
    if not count:
        return Verdict("repeatable", True, "repeatable: one caller gets the first results again, bit for bit")
    return Verdict(
        "repeatable",
        False,
        f"NOT REPEATABLE: {count} calls of one caller gave other bits than the first call with the same inputs",
        "it draws numbers, keeps state between calls, or reads memory that it did not write; declare "
        "deterministic=False where that is meant",
    )


def _thread_safe(spec: Spec, done: Mapping[str, Any]) -> Verdict:
    if not spec.compare or not done:
        return Verdict("threads", None, "results of several callers were not compared")
    count = sum(done["together"]["mismatches"].values())
    alone = sum(done["alone"]["mismatches"].values()) + sum(done["again"]["mismatches"].values())
    if not count:
        if not done["together"]["runs"]:
            return Verdict("threads", None, "several callers finished no call")
        words = f"thread-safe: {spec.threads} callers at once get the first results, bit for bit"
        return Verdict("threads", True, words)
    if alone:
        return Verdict("threads", None, "threads not judged, since one caller alone gets other results as well")
    return Verdict(
        "threads",
        False,
        f"NOT THREAD-SAFE: {count} of {done['together']['runs']} calls gave other bits while {spec.threads} callers "
        "ran; alone the same cases always give the first results",
        "calls share memory: a static or global buffer, or an output that is used again",
    )


def _memory(seen: Seen, found: Growth) -> Verdict:
    if not seen.memory:
        return Verdict("memory", None, "memory was not measured")
    per_call = found.bytes / max(1.0, found.span)
    interval = (
        f"{found.bytes / _MIB:+.2f} MiB ({found.low / _MIB:+.2f} to {found.high / _MIB:+.2f}) over the samples after "
        f"warm-up, {found.allowed / _MIB:g} allowed"
    )
    if found.verdict == "grows":
        return Verdict("memory", False, f"MEMORY GROWS: about {per_call:.3g} bytes a call", interval)
    if found.verdict == "holds":
        return Verdict("memory", True, f"memory holds at {seen.memory[-1][1] / _MIB:.1f} MiB", interval)
    return Verdict("memory", None, "memory: not clear, run longer", interval)


def _inputs(done: Mapping[str, Any]) -> Verdict:
    written = done.get("written", [])
    if not done:
        return Verdict("inputs", None, "inputs were not looked at")
    if written:
        return Verdict("inputs", False, "WRITES ITS INPUTS", f"case {written[0]} and {len(written) - 1} more")
    return Verdict("inputs", True, "inputs are left as they were")


def _failures(seen: Seen, done: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for part in ("alone", "together"):
        for failure in done.get(part, {}).get("first", []):
            rows.setdefault(failure["kind"], failure)
    if seen.ended in ("crashed", "hung"):
        kind = {"crashed": "crash", "hung": "hang"}[seen.ended]
        for job in sorted(set(seen.flight)):
            rows.setdefault(f"{kind} {job}", {"kind": kind, "job": job, "text": seen.how, "trace": ""})
    ways = seen.messages.get("loaded", {}).get("reproduce", [])
    return [{**row, "case": seen.jobs[row["job"]], "npz": "", "reproduce": ways[row["job"]]} for row in rows.values()]


def write(report: StressReport, seen: Seen, folder: Path) -> None:
    """Write ``stress.json``, ``stress.txt`` and the inputs of the failures to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for failure in report.failures:
        job = failure.pop("job")
        source = seen.folder / f"{job}.npz"
        if source.is_file():
            target = folder / f"{failure['kind']}-{job}.npz"
            with whole_file(target) as temporary:
                shutil.copyfile(source, temporary)
            failure["npz"] = str(target)
            failure["reproduce"] = failure["reproduce"].replace("{npz}", str(target))
    with whole_file(folder / "stress.json") as temporary:
        temporary.write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
    with whole_file(folder / "stress.txt") as temporary:
        temporary.write_text(report.text(), encoding="utf-8")
