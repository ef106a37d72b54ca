"""What a log says: errors, drifting latency, growing memory, and operators that became slower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from statistics import median
from typing import Any

from opforge.errors import ArgumentError
from opforge.monitor._log import Log
from opforge.verify.stress import Growth, Verdict, growth

__all__ = ["Limits", "LogReport", "OperatorChange", "baseline", "judge"]

_FEWEST = 3
"""Windows with timed operators on either side of a comparison."""
_SHARE = 0.02
"""Of the nodes' time; operators with less are shown but no fault: they tell of the clock."""


@dataclass(frozen=True)
class Limits:
    """Where a change becomes a fault.

    Attributes:
        slower: an operator's time over that before.
        drift: growth of the median latency over the log, as a part of it.
        leak: growth of memory over the log in bytes.
    """

    slower: float = 1.25
    drift: float = 0.1
    leak: int = 1 << 20


@dataclass(frozen=True)
class OperatorChange:
    """Time of all nodes of an operator in a run, before and now; ``share`` is its part of the time now."""

    operator: str
    before_ns: float
    now_ns: float
    share: float

    @property
    def ratio(self) -> float:
        """How many times as long it takes now."""
        return self.now_ns / self.before_ns


@dataclass
class LogReport:
    """What one process wrote of one session, judged.

    Attributes:
        log: what was read.
        verdicts: a question each; ``passed`` is None where the log does not say.
        operators: those that both sides know, the dearest first; empty where nothing can be compared.
        before: what they are held against.
    """

    log: Log
    verdicts: list[Verdict]
    operators: list[OperatorChange]
    before: str

    @property
    def passed(self) -> bool:
        """Whether no verdict failed."""
        return all(verdict.passed is not False for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        """Give plain data, times in nanoseconds."""
        log = self.log
        return {
            "passed": self.passed, "model": log.model, "process": log.process, "path": log.path,
            "fingerprint": log.fingerprint, "version": log.version, "threads": log.threads,
            "windows": len(log.windows), "runs": log.runs, "seconds": sum(w["seconds"] for w in log.windows),
            "sampled_runs": sum(w["sampled_runs"] for w in log.windows),
            "shapes": [{"inputs": shapes, "runs": count} for shapes, count in log.shapes],
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "before": self.before,
            "operators": [{**asdict(row), "ratio": row.ratio} for row in self.operators],
            "latency_ns": [{"at": w["at"], **w["latency_ns"]} for w in log.windows if w["latency_ns"]],
            "resident_bytes": [w["resident_bytes"] for w in log.windows],
        }  # fmt: skip


def judge(log: Log, baseline: Mapping[str, Any] | None = None, limits: Limits | None = None) -> LogReport:
    """Judge a log.

    Args:
        log: of one process and session.
        baseline: what ``opforge profile MODEL --json`` printed, or ``baseline`` makes of earlier logs; without it the
            last third of the log is held against the first.
        limits: None = the defaults.
    """
    limits = limits or Limits()
    operators, verdict, before = _operators(log, baseline, limits)
    return LogReport(log, [_errors(log), _latency(log, limits), _memory(log, limits), verdict], operators, before)


def baseline(logs: Sequence[Log], name: str) -> dict[str, Any]:
    """Make what ``judge`` holds a log against of earlier logs: the median of their windows.

    Raises:
        ArgumentError: no window has timed operators.
    """
    timed = [window for log in logs for window in log.windows if window["sampled_runs"]]
    if not timed:
        raise ArgumentError("nothing to compare with", where=name, expected="a window with timed operators")
    threads = {log.threads for log in logs}
    return {
        "model": name,
        "inputs": _commonest(timed),
        "threads": threads.pop() if len(threads) == 1 else None,
        "nodes": [{"operator": operator, "run_ns": time} for operator, time in _typical(timed).items()],
    }


def _errors(log: Log) -> Verdict:
    kinds: dict[str, int] = {}
    for window in log.windows:
        for kind, count in window["errors"].items():
            kinds[kind] = kinds.get(kind, 0) + count
    if not kinds:
        return Verdict("errors", True, "no errors", f"{log.runs} runs")
    words = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1]))
    return Verdict("errors", False, f"{sum(kinds.values())} ERRORS", f"{words}; {log.runs} runs ended well")


def _latency(log: Log, limits: Limits) -> Verdict:
    spreads = [window["latency_ns"] for window in log.windows if window["latency_ns"]]
    typical = [spread["p50"] for spread in spreads]
    middle = median(typical) if typical else 0.0
    # The line and its interval that tell a leak tell a drift as well.
    found = growth(typical, max(1, int(limits.drift * middle)))
    tail = median([s["p99"] / max(1, s["p50"]) for s in spreads]) if spreads else 0.0
    detail = f"p50 {middle / 1e3:.4g} us over {len(spreads)} windows, by the line {found.bytes / 1e3:+.3g} us"
    detail += f" (95 %: {found.low / 1e3:+.3g} to {found.high / 1e3:+.3g}); p99 is {tail:.2g} times p50"
    return _grown("latency", found, "the median latency GROWS", "the median latency holds", detail)


def _memory(log: Log, limits: Limits) -> Verdict:
    found = growth([w["resident_bytes"] for w in log.windows if w["resident_bytes"]], limits.leak)
    mib = 1 << 20
    detail = f"by the line {found.bytes / mib:+.3g} MiB (95 %: {found.low / mib:+.3g} to {found.high / mib:+.3g})"
    runs = max(1, log.runs)
    detail += f", {found.bytes / runs:.3g} bytes a run" if found.verdict == "grows" else ""
    return _grown("memory", found, "memory GROWS", "memory holds", detail)


def _grown(check: str, found: Growth, grows: str, holds: str, detail: str) -> Verdict:
    if not found.samples:
        return Verdict(check, None, "not clear: too few windows", "16 windows with runs are enough")
    said = {"grows": (False, grows), "holds": (True, holds), "not clear": (None, "not clear: watch longer")}
    passed, words = said[found.verdict]
    return Verdict(check, passed, words, detail)


Windows = Sequence[Mapping[str, Any]]


def _operators(
    log: Log, baseline: Mapping[str, Any] | None, limits: Limits
) -> tuple[list[OperatorChange], Verdict, str]:
    timed = [window for window in log.windows if window["sampled_runs"]]
    if baseline is not None:
        before = PurePath(str(baseline["model"])).name
        before = before if before.endswith(".jsonl") else f"the profile of {before}"
        shapes, now = baseline["inputs"], timed
        times = _summed(baseline["nodes"])
        unfit = _other_shapes(now, shapes, f"opforge profile {log.path} --from-log LOG --json makes a profile of them")
        if not unfit and baseline["threads"] not in (log.threads, None) and log.threads is not None:
            unfit = f"the profile is of {baseline['threads']} threads, the log of {log.threads}"
    else:
        before = "the first third of the log"
        third = len(timed) // 3
        first, now = timed[:third], timed[len(timed) - third :]
        times = _typical(first)
        unfit = _other_shapes(now, _commonest(first), "the runs changed, not the operators") if third else ""
    if len(now) < _FEWEST:
        words = f"not clear: {len(now)} windows with timed operators"
        return [], Verdict("operators", None, words, f"against {before}; {_FEWEST} are needed"), before
    if unfit:
        return [], Verdict("operators", None, "not compared: other shapes or threads", unfit), before
    current = _typical(now)
    total = sum(current.values()) or 1.0
    rows = [OperatorChange(k, times[k], v, v / total) for k, v in current.items() if times.get(k, 0) > 0 and v > 0]
    rows.sort(key=lambda row: -row.now_ns)
    return rows, _slower(rows, limits, before), before


def _slower(rows: Sequence[OperatorChange], limits: Limits, before: str) -> Verdict:
    bad = [row for row in rows if row.ratio >= limits.slower and row.share >= _SHARE]
    if not bad:
        worst = max((row.ratio for row in rows), default=1.0)
        return Verdict("operators", True, "no operator became slower", f"at most {worst:.3g} times {before}")
    named = ", ".join(f"{r.operator} {r.ratio:.3g}x ({r.before_ns / 1e3:.4g} -> {r.now_ns / 1e3:.4g} us)" for r in bad)
    common = sum(row.now_ns for row in rows) / sum(row.before_ns for row in rows)
    alike = len(rows) > 1 and all(0.8 <= row.ratio / common <= 1.25 for row in rows if row.share >= _SHARE)
    cause = f"; all alike, {common:.3g} times: the machine (its clock, other programs), not an operator"
    return Verdict("operators", False, f"SLOWER than {before}: {named}", f"limit {limits.slower:g}x{cause * alike}")


def _other_shapes(windows: Windows, expected: Mapping[str, Any] | None, hint: str) -> str:
    """Say how the commonest shapes differ from these; "" where they do not, or none were noted."""
    got = _commonest(windows)
    if got is None or expected is None or got == dict(expected):
        return ""
    return f"runs have {_shapes(got)}, before {_shapes(expected)}; {hint}"


def _commonest(windows: Windows) -> dict[str, Any] | None:
    shapes = Log("", 0, "", "", "", None, [dict(window) for window in windows]).shapes
    return shapes[0][0] if shapes else None


def _shapes(inputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in inputs.items())


def _typical(windows: Windows) -> dict[str, float]:
    """Each operator's time in a run: the median over the windows in which it ran."""
    names = dict.fromkeys(name for window in windows for name in window["operators"])
    return {name: median([w["operators"][name] for w in windows if name in w["operators"]]) for name in names}


def _summed(nodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for node in nodes:
        found[node["operator"]] = found.get(node["operator"], 0.0) + node["run_ns"]
    return found
