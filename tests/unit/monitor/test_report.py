"""What is said of a log: each fault is planted in windows whose figures are known."""

import json

import pytest

from opforge.errors import ArgumentError
from opforge.monitor import Limits, baseline, judge, logs_of
from tests.unit.monitor.lines import WINDOWS, line, steady


def report(lines, against=None, **limits):
    (log,) = logs_of(lines)
    found = judge(log, against, Limits(**limits))
    json.dumps(found.as_dict(), allow_nan=False)
    return found, {verdict.check: verdict for verdict in found.verdicts}


def profile(**changes):
    """What `opforge profile --json` prints, as far as it is read."""
    nodes = [{"operator": "MatMul", "run_ns": 70_000.0}, {"operator": "MatMul", "run_ns": 50_000.0},
             {"operator": "Softmax", "run_ns": 60_000.0}]  # fmt: skip
    return {"model": "models/net.bin", "inputs": {"x": [4, 8]}, "threads": 1, "nodes": nodes, **changes}


def test_a_steady_log_passes():
    found, verdicts = report(steady())
    assert found.passed
    assert {check: verdict.passed for check, verdict in verdicts.items()} == dict.fromkeys(
        ("errors", "latency", "memory", "operators"), True
    )
    assert [(row.operator, row.ratio) for row in found.operators] == [("MatMul", 1), ("Softmax", 1), ("Shape", 1)]
    assert found.before == "the first third of the log"


def test_noise_is_no_fault():
    lines = steady()
    for k, one in enumerate(lines):
        one["latency_ns"] = {**one["latency_ns"], "p50": 200_000 + 3_000 * (-1) ** k}
        one["resident_bytes"] += (k * 7919 % 11) * 4096
    assert report(lines)[0].passed


def test_errors_are_a_fault():
    lines = steady()
    lines[3]["errors"], lines[9]["errors"] = {"ArgumentError": 2}, {"ArgumentError": 1, "DtypeError": 1}
    found, verdicts = report(lines)
    assert not found.passed
    assert verdicts["errors"].words == "4 ERRORS"
    assert "3 ArgumentError, 1 DtypeError" in verdicts["errors"].detail


def test_memory_that_grows_is_a_fault():
    found, verdicts = report([line(at, resident_bytes=(100 << 20) + at * (1 << 20)) for at in range(WINDOWS)])
    assert not found.passed
    assert verdicts["memory"].words == "memory GROWS"
    assert "bytes a run" in verdicts["memory"].detail
    # The same, allowed.
    assert report([line(at, resident_bytes=(100 << 20) + at * 1024) for at in range(WINDOWS)])[0].passed


def test_latency_that_drifts_is_a_fault():
    lines = steady()
    for k, one in enumerate(lines):
        one["latency_ns"] = {**one["latency_ns"], "p50": 200_000 + 5_000 * k}
    found, verdicts = report(lines)
    assert not found.passed
    assert verdicts["latency"].words == "the median latency GROWS"
    assert report(lines, drift=1.0)[0].passed


def test_few_windows_are_no_verdict():
    found, verdicts = report(steady()[:2])
    assert found.passed
    assert [verdicts[check].passed for check in ("latency", "memory", "operators")] == [None, None, None]


def test_an_operator_that_became_slower_is_named():
    slow = {"MatMul": 120_000.0, "Softmax": 90_000.0, "Shape": 500.0}
    lines = steady()
    for one in lines[WINDOWS // 2 :]:
        one["operators"] = slow
    for found, verdicts in (report(lines), report(steady(operators=slow), profile())):
        assert not found.passed
        # Shape takes ten times as long, but nothing of the time.
        assert verdicts["operators"].words.endswith(": Softmax 1.5x (60 -> 90 us)")
        assert "all alike" not in verdicts["operators"].detail
    assert report(lines, slower=1.6)[0].passed
    assert found.before == "the profile of net.bin"


def test_a_machine_that_became_slower_is_no_operator():
    found, verdicts = report(steady(operators={"MatMul": 240_000.0, "Softmax": 122_000.0}), profile())
    assert not found.passed
    assert "all alike, 2.01 times: the machine" in verdicts["operators"].detail


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": {"x": [1, 8]}}, "runs have x [4, 8], before x [1, 8]; opforge profile net.bin --from-log LOG"),
        ({"threads": 4}, "the profile is of 4 threads, the log of 1"),
    ],
)
def test_what_is_not_alike_is_not_compared(changes, words):
    found, verdicts = report(steady(), profile(**changes))
    assert found.passed
    assert found.operators == []
    assert verdicts["operators"].passed is None
    assert words in verdicts["operators"].detail


def test_runs_of_another_shape_are_no_slower_operator():
    lines = steady()
    for one in lines[WINDOWS // 2 :]:
        one["operators"], one["shapes"] = {"MatMul": 240_000.0}, [{"inputs": {"x": [8, 8]}, "runs": 2}]
    verdict = report(lines)[1]["operators"]
    assert verdict.passed is None
    assert "the runs changed, not the operators" in verdict.detail


def test_an_earlier_log_is_a_baseline():
    before = baseline(logs_of(steady()), "deployed.jsonl")
    found, verdicts = report(steady(operators={"MatMul": 120_000.0, "Softmax": 61_000.0}), before)
    assert found.passed
    assert found.before == "deployed.jsonl"
    slow, verdicts = report(steady(operators={"MatMul": 360_000.0, "Softmax": 60_000.0}), before)
    assert not slow.passed
    assert "SLOWER than deployed.jsonl: MatMul 3x" in verdicts["operators"].words
    with pytest.raises(ArgumentError, match="nothing to compare with"):
        baseline(logs_of(steady(sampled_runs=0)), "empty.jsonl")


def test_each_process_is_judged_by_itself():
    logs = logs_of(steady() + steady(process=8, errors={"ArgumentError": 1}))
    assert [(log.process, judge(log).passed) for log in logs] == [(7, True), (8, False)]
