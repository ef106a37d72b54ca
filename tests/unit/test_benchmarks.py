"""Results of the benchmarks: what an earlier run measured stays."""

import json

import benchmarks.__main__ as bench
from benchmarks._case import all_cases


def row(case, ratio):
    return {"case": case, "ratio": ratio}


def test_a_run_of_some_cases_keeps_the_rows_of_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "OUT", tmp_path)
    first, second, third = all_cases()[:3]
    bench._write([row(first.name, 1.0), row(f"{second.name}: part", 2.0), row(third.name, 3.0), row("gone", 4.0)])
    kept = bench._kept([second])
    assert [r["ratio"] for r in kept] == [1.0, 3.0]
    bench._write([row(second.name, 5.0), *kept])
    rows = json.loads((tmp_path / "results.json").read_text())
    assert [(r["case"], r["ratio"]) for r in rows] == [(first.name, 1.0), (second.name, 5.0), (third.name, 3.0)]


def test_rows_of_another_machine_are_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "OUT", tmp_path)
    case, other = all_cases()[:2]
    assert bench._kept([case]) == []
    bench._write([row(other.name, 1.0)])
    assert bench._kept([case])
    machine = json.loads((tmp_path / "machine.json").read_text())
    (tmp_path / "machine.json").write_text(json.dumps({**machine, "cpu": "another"}))
    assert bench._kept([case]) == []
