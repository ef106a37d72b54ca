"""`opforge monitor` and the way back, `opforge profile --from-log`."""

import json

import pytest

from tests.unit.cli.conftest import opforge as opforge
from tests.unit.monitor.lines import steady, written
from tests.unit.profiling.models import mlp_bin


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_is_watched_and_its_log_read_back(opforge, folder):
    """Whether it stands still is the machine's affair; what is said must be there."""
    mlp_bin(folder)
    words = ("--seconds", "0.2", "--size", "N=5", "--threads", "1", "--every", "1", "--log", "net.jsonl", "--port", "0")
    watched = opforge("monitor", "mlp.bin", *words, "--json")
    assert watched.code == (0 if watched.json["passed"] else 1)
    assert watched.err.startswith("metrics: http://127.0.0.1:")
    (report,) = watched.json["monitor"]
    assert report["runs"] > 0
    assert report["shapes"][0]["inputs"] == {"x": [5, 8]}
    assert [verdict["check"] for verdict in report["verdicts"]] == ["errors", "latency", "memory", "operators"]
    (again,) = opforge("monitor", "net.jsonl", "--json").json["monitor"]
    assert {**again, "verdicts": ()} == {**report, "verdicts": ()}

    profile = opforge("profile", "mlp.bin", "--from-log", "net.jsonl", "--runs", "3", "--json")
    assert profile.code == 0, profile.err
    assert (profile.json["inputs"], profile.json["threads"]) == ({"x": [5, 8]}, 1)


def test_a_log_against_a_profile(opforge, folder):
    log = written(folder / "net.jsonl", steady())
    nodes = [{"operator": "MatMul", "run_ns": 60_000.0}, {"operator": "Softmax", "run_ns": 60_000.0}]
    (folder / "profile.json").write_text(
        json.dumps({"model": "net.bin", "inputs": {"x": [4, 8]}, "threads": 1, "nodes": nodes})
    )
    said = opforge("monitor", log, "--against", "profile.json")
    assert said.code == 1
    assert "net, process 7: 2400 runs in 240.0 s, 24 windows, operators timed in 48 runs" in said.out
    assert "FAILED operators: SLOWER than the profile of net.bin: MatMul 2x (60 -> 120 us)" in said.out
    assert "a run, against the profile of net.bin" in said.out
    assert opforge("monitor", log, "--against", "profile.json", "--slower", "2.5").code == 0
    assert opforge("monitor", log, "--against", log).code == 0


def test_a_dashboard_is_written(opforge, folder):
    said = opforge("monitor", "--dashboard", "grafana.json")
    assert said.code == 0, said.err
    assert json.loads((folder / "grafana.json").read_text())["panels"]
    assert "wrote grafana.json" in said.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give one model, or logs"),
        (("a.bin", "b.bin"), "give one model, or logs"),
        (("none.bin",), "there is no such model"),
        (("none.jsonl",), "there is no such log"),
        (("empty.jsonl",), "the logs are empty"),
        (("net.jsonl", "--against", "net.txt"), "no profile"),
        (("net.jsonl", "--against", "none.json"), "no profile"),
        (("--dashboard", "grafana.txt"), "a dashboard is JSON"),
    ],
)
def test_wrong_use(opforge, folder, words, told):
    written(folder / "net.jsonl", steady())
    written(folder / "empty.jsonl", [])
    (folder / "net.txt").write_text("nothing")
    said = opforge("monitor", *words)
    assert said.code == 2
    assert told in said.err


def test_a_log_of_another_model_gives_no_sizes(opforge, folder):
    mlp_bin(folder)
    written(folder / "other.jsonl", steady(shapes=[{"inputs": {"x": [4, 9]}, "runs": 1}]))
    said = opforge("profile", "mlp.bin", "--from-log", "other.jsonl")
    assert said.code == 2
    assert "input x: the log is of another model" in said.err
    said = opforge("profile", "mlp.bin", "--from-log", "other.jsonl", "--size", "N=4")
    assert said.code == 2
    assert "give one of --from-log, --npz and --size" in said.err
