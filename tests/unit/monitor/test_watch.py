"""A watched session: counts, metrics, log; and that nothing is left of it afterwards."""

import http.client
import json
import logging
import math
import threading
from urllib.parse import urlsplit

import numpy as np
import onnx
import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import opforge as of
from opforge.errors import ArgumentError
from opforge.monitor import METRICS, Collector, metrics_text, read_log, serve, watch, write_textfile
from tests.unit.profiling.models import constant, mlp_bin, model


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return mlp_bin(tmp_path_factory.mktemp("watched"))


@pytest.fixture
def session(path):
    return of.Session(path, threads=1)


@pytest.fixture
def monitor(session):
    with watch(session, interval=None, every=2) as found:
        yield found


def inputs(rows=3):
    return {"x": np.linspace(-1, 1, rows * 8, dtype=np.float32).reshape(rows, 8)}


def samples(text):
    """Every line as (name, labels) -> value; the labels without the process."""
    found = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = tuple(sorted((k, v) for k, v in one.labels.items() if k != "process"))
            found[one.name, labels] = one.value
    return found


def test_off_is_the_plain_method(session):
    """No branch, no timer: what runs is the method of the class."""
    assert "run" not in vars(session)
    with watch(session, interval=None):
        assert "run" in vars(session)
    assert "run" not in vars(session)
    session.run(inputs())
    assert session.events()[0].size == 0, "nodes are timed although nobody watches"


def test_results_are_those_of_an_unwatched_session(session, path):
    expected = of.Session(path, threads=1).run(inputs())["y"]
    with watch(session, interval=None, every=1):
        np.testing.assert_array_equal(session.run(inputs())["y"], expected)


def test_runs_errors_and_operators_are_counted(session, monitor):
    for _ in range(10):
        session.run(inputs())
    for wrong in ({}, {"x": np.zeros((2, 7), np.float32)}, {"x": np.zeros((2, 8))}):
        with pytest.raises(of.errors.OpforgeError):
            session.run(wrong)
    line = monitor.roll()
    assert (line["runs"], line["errors"]) == (10, {"ArgumentError": 2, "DtypeError": 1})
    # Runs that are refused before they begin are not sampled: of ten, every second one.
    assert line["sampled_runs"] == 5
    assert set(line["operators"]) == {"opforge::MatMul"}
    assert line["operators"]["opforge::MatMul"] == pytest.approx(sum(node["run_ns"] for node in line["nodes"]))
    assert {node["name"]: node["calls"] for node in line["nodes"]} == {"hidden": 5, "y": 5}
    assert line["shapes"] == [{"inputs": {"x": [3, 8]}, "runs": 5}]
    assert 0 < line["latency_ns"]["p50"] <= line["latency_ns"]["p99"] <= line["latency_ns"]["max"]
    assert line["arena_bytes"] == session.statistics["arena_bytes"]

    found = samples(metrics_text(monitor))
    model = ("model", "mlp")
    assert found["opforge_runs_total", (model,)] == 10
    assert found["opforge_errors_total", (model, ("type", "ArgumentError"))] == 2
    assert found["opforge_sampled_runs_total", (model,)] == 5
    assert found["opforge_operator_seconds_total", (model, ("operator", "opforge::MatMul"))] > 0
    assert found["opforge_run_seconds_count", (model,)] == 10
    assert found["opforge_run_seconds_bucket", (("le", "+Inf"), model)] == 10
    assert found["opforge_run_seconds_sum", (model,)] == pytest.approx(line["latency_ns"]["mean"] * 10 / 1e9)


def test_windows_begin_from_zero_and_metrics_do_not(session, monitor):
    for runs in (3, 4):
        for _ in range(runs):
            session.run(inputs())
        assert monitor.roll()["runs"] == runs
    empty = monitor.roll()
    assert (empty["runs"], empty["sampled_runs"], empty["latency_ns"], empty["operators"]) == (0, 0, {}, {})
    assert samples(metrics_text(monitor))["opforge_runs_total", (("model", "mlp"),)] == 7


def test_many_callers_are_all_counted(session, monitor):
    callers = [threading.Thread(target=lambda: [session.run(inputs()) for _ in range(50)]) for _ in range(4)]
    for caller in callers:
        caller.start()
    while any(caller.is_alive() for caller in callers):
        monitor.roll()
    for caller in callers:
        caller.join()
    assert samples(metrics_text(monitor))["opforge_runs_total", (("model", "mlp"),)] == 200


def test_buckets_hold_what_is_not_above_their_end(monitor):
    """Values are chosen: the clock has no part in it."""
    for nanoseconds in (500, 3_000, 3_000, 40_000_000, 9_000_000_000):
        monitor._runs_now.record(nanoseconds)
    found = samples(metrics_text(monitor))
    below = {
        float(dict(labels)["le"]): value for (name, labels), value in found.items() if name.endswith("seconds_bucket")
    }
    assert below[1e-6] == 1
    assert below[2.5e-6] == 1
    assert below[5e-6] == 3
    assert below[0.025] == 3
    assert below[0.05] == 4
    assert below[5] == 4
    assert below[math.inf] == 5
    assert list(below.values()) == sorted(below.values())


def test_text_is_what_prometheus_client_writes(session, monitor):
    session.run(inputs())
    with pytest.raises(ArgumentError):
        session.run({})
    monitor.roll()
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(Collector(monitor))
    ours, theirs = samples(metrics_text(monitor)), samples(prometheus_client.generate_latest(registry).decode())
    moving = {key for key in ours if key[0] == "opforge_resident_bytes"}
    assert ours.keys() == theirs.keys()
    assert {k: v for k, v in ours.items() if k not in moving} == {k: v for k, v in theirs.items() if k not in moving}
    text = metrics_text(monitor)
    for metric in METRICS.values():
        assert text.count(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n") == 1


def test_names_of_models_and_labels_are_escaped(path):
    first, second = (of.Session(path, threads=1) for _ in range(2))
    with (
        watch(first, interval=None, name='a "b"\\\nc') as one,
        watch(second, interval=None, name='a "b"\\\nc') as two,
    ):
        models = {dict(labels)["model"] for _, labels in samples(metrics_text(one, two))}
    assert models == {'a "b"\\\nc', 'a "b"\\\nc-2'}


def test_a_log_has_a_line_a_window(session, path, tmp_path):
    log = tmp_path / "net.jsonl"
    other = of.Session(path, threads=1)
    with watch(session, interval=None, log=log, every=1) as one, watch(other, interval=None, log=log, every=1) as two:
        for _ in range(2):
            session.run(inputs())
            one.roll()
        other.run(inputs(5))
        two.roll()
        session.run(inputs())  # closing writes it
    with log.open("a") as stream:
        stream.write('{"format": "opforge-mon')  # somebody is writing
    first, second = read_log([log])
    assert (first.model, first.runs, [w["runs"] for w in first.windows]) == ("mlp", 3, [1, 1, 1])
    assert (second.model, second.shapes) == ("mlp-2", [({"x": [5, 8]}, 1)])
    assert first.fingerprint == second.fingerprint
    assert first.threads == 1


def test_fingerprints_tell_models_apart(path, tmp_path):
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = model(nodes, {"x": ["N", 8]}, ["y"], constant("w", 8, 2))
    of.compile(graph, tmp_path / "other.bin")
    lines = []
    for file in (path, tmp_path / "other.bin"):
        with watch(of.Session(file, threads=1), interval=None) as monitor:
            lines.append(monitor.roll())
    assert lines[0]["fingerprint"] != lines[1]["fingerprint"]


def test_foreign_lines_are_refused(tmp_path):
    log = tmp_path / "net.jsonl"
    log.write_text('{"level": "info"}\n')
    with pytest.raises(ArgumentError) as caught:
        read_log([log])
    assert f"{log}, line 1: a line of the log is not what opforge monitor writes" in str(caught.value)
    log.write_text(json.dumps({"format": "opforge-monitor-1", "model": "net"}) + "\n")
    with pytest.raises(ArgumentError, match="lacks entries"):
        read_log([log])
    with pytest.raises(ArgumentError, match="there is no such log"):
        read_log([tmp_path / "none.jsonl"])


def test_wrong_use_says_what_is_wrong(session, tmp_path):
    with watch(session, interval=None), pytest.raises(ArgumentError) as caught:
        watch(session, interval=None)
    assert "the session is watched already" in str(caught.value)
    for options, words in (
        ({"every": 0}, "no run would be sampled"),
        ({"interval": 0.0}, "a window needs time"),
        ({"interval": math.nan}, "a window needs time"),
        ({"log": tmp_path / "none" / "net.jsonl"}, "there is no such folder"),
    ):
        with pytest.raises(ArgumentError, match=words):
            watch(session, **options)
    assert "run" not in vars(session)


def test_the_writer_goes_on_after_a_lost_line(session, caplog, monkeypatch):
    """Each roll is waited for, so that no time has to pass for it."""
    came, calls = threading.Event(), []
    monitor = watch(session, interval=None)

    def roll():
        calls.append(len(calls))
        if len(calls) == 1:
            raise OSError(28, "No space left on device")
        came.set()

    monkeypatch.setattr(monitor, "roll", roll)
    with caplog.at_level(logging.WARNING, "opforge.monitor"):
        monitor.start(1e-3)
        assert came.wait(120)
        monitor.close()
    assert "a line of the log of mlp is lost: [Errno 28] No space left on device" in caplog.text


def fetch(url, place):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
    try:
        connection.request("GET", place)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def test_metrics_are_served_on_the_loopback(session, monitor):
    with serve(monitor) as server:
        assert server.url.startswith("http://127.0.0.1:")
        session.run(inputs())
        status, kind, text = fetch(server.url, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert samples(text)["opforge_runs_total", (("model", "mlp"),)] == 1
        assert fetch(server.url, "/")[0] == 404
        port = urlsplit(server.url).port
        with pytest.raises(ArgumentError) as caught:
            serve(monitor, port=port)
    assert "metrics cannot be served there" in str(caught.value)
    assert f"127.0.0.1:{port}" in str(caught.value)


def test_a_textfile_appears_whole(session, monitor, tmp_path):
    session.run(inputs())
    path = write_textfile(tmp_path, monitor)
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    assert path.suffix == ".prom"
    assert samples(path.read_text())["opforge_runs_total", (("model", "mlp"),)] == 1
