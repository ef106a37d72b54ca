"""Results of the benchmarks: what an earlier run measured stays."""

import json

import benchmarks.__main__ as bench
from benchmarks._case import all_cases
from benchmarks._summary import geometric_means, second_thread


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


def timed(case, threads, ours, theirs, peer="onnxruntime", group="images"):
    values = {"ours": ours, "peer_value": theirs, "ratio": theirs / ours}
    return {"case": case, "threads": threads, "peer": peer, "group": group, "metric": "time", **values}


def test_means_are_of_whole_models_by_peer_and_threads():
    rows = [
        timed("a", 1, 1.0, 1.0),
        timed("b", 1, 1.0, 4.0),
        timed("b", 1, 1.0, 1.0, peer="openvino"),
        timed("b, 2 threads", 2, 1.0, 1.4, group="models"),
        timed("kernel", 1, 1.0, 100.0, group="operators"),
        timed("b", 1, 1.0, 100.0, peer="torch"),
    ]
    assert geometric_means(rows) == [
        ("1", "onnxruntime", "2", "2.00", "1.50"),
        ("1", "openvino", "1", "1.00", "1.30, short"),
        ("2", "onnxruntime", "1", "1.40", "1.35"),
    ]


def test_a_second_thread_is_asked_for_what_it_brings_onnx_runtime():
    rows = [
        *(timed("good", 1, 4.0, 8.0), timed("good, 2 threads", 2, 2.0, 4.0)),
        *(timed("behind", 1, 3.0, 8.0), timed("behind, 2 threads", 2, 2.0, 4.0)),
        *(timed("neither", 1, 3.0, 3.0), timed("neither, 2 threads", 2, 3.0, 2.0)),
        *(timed("other", 1, 3.0, 3.0, peer="openvino"), timed("other, 2 threads", 2, 3.0, 2.0, peer="openvino")),
        timed("alone", 1, 1.0, 1.0),
    ]
    assert second_thread(rows) == [
        ("good", "2.00", "2.00", "1.80"),
        ("behind", "1.50", "2.00", "1.80, short"),
        ("neither", "1.00", "1.50", ""),
    ]
