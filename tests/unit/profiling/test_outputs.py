"""Advice, traces, pictures, files and the command."""

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import opforge as of
from opforge.cli._profile import csv_text, print_side_by_side
from opforge.cli.commands.profile import command
from opforge.profiling import RULES, Machine, NodeRow, Profile, chrome_trace, collapsed_stacks, flame, roofline
from opforge.profiling._advice import advise
from tests.unit.profiling import models

X = {"x": np.ones((32, 8), np.float32)}
MACHINE = Machine("m", 2, 1e11, ((1 << 14, 1e11), (1 << 28, 1e10)))


def row(name: str, share: float, **fields: object) -> NodeRow:
    samples = np.full(200, 10_000, np.int64)
    return replace(NodeRow(name, "MatMul", 200, samples, 10_000.0, share), **fields)  # type: ignore[arg-type]


def profile_of(*rows: NodeRow, **fields: object) -> Profile:
    none = np.zeros(0, np.int64)
    made = Profile("folder/model.onnx", "opforge", "1", 2, {"x": [1]}, none, none, 1, list(rows), MACHINE)
    return replace(made, **fields)  # type: ignore[arg-type]


GOOD = {"bytes": 1 << 28, "flops": 10**9}  # 4 operations a byte; reached: 27 TB/s, beyond any roof
CASES = {
    "one node dominates": (profile_of(row("a", 0.5, **GOOD), row("b", 0.02, **GOOD)), "a", 0.5),
    "copies": (profile_of(row("a", 0.12, moves="copy"), row("b", 0.3, **GOOD)), "", 0.12),
    "layout conversions": (profile_of(row("a", 0.06, moves="layout"), row("b", 0.3, **GOOD)), "", 0.06),
    "low arithmetic intensity": (profile_of(row("a", 0.3, bytes=1 << 28, flops=1 << 28)), "a", 0.1),
    "below the roof": (profile_of(row("a", 0.3, bytes=10_000, flops=100_000)), "a", 0.1),
    "threads do not help": (profile_of(row("a", 0.3, speedup=1.1, **GOOD)), "a", 1.1),
    "short nodes": (
        profile_of(*(row(f"n{k}", 0.03, samples=np.full(200, 900, np.int64)) for k in range(9))), "", 0.27
    ),
    "time outside of nodes": (profile_of(row("a", 0.3, **GOOD), outside=0.5), "", 0.5),
    "unsteady": (profile_of(row("a", 0.3, samples=np.repeat([10**4, 3 * 10**4], [190, 10]), **GOOD)), "a", 3.0),
}  # fmt: skip


@pytest.mark.parametrize("rule", CASES)
def test_each_rule_finds_its_case_alone(rule: str) -> None:
    profile, where, figure = CASES[rule]
    found = advise(profile)
    assert [item.rule for item in found] == [rule]
    assert (found[0].where, found[0].figure) == (where, pytest.approx(figure))
    known = next(item for item in RULES if item.name == rule)
    assert (found[0].threshold, found[0].unit, found[0].hint) == (known.threshold, known.unit, known.hint)


def test_every_rule_has_a_case() -> None:
    assert {rule.name for rule in RULES} == {*CASES, "not fused"}


def test_nothing_stands_out_where_nothing_does() -> None:
    assert advise(profile_of(*(row(f"n{k}", 0.3, **GOOD) for k in range(3)))) == []
    assert advise(profile_of(row("alone", 1.0, **GOOD))) == []


def test_work_that_is_not_fused_says_why() -> None:
    from onnx import helper

    def net(outputs: list[str]) -> Profile:
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
            helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
            helper.make_node("Softmax", ["h"], ["s"], name="softmax"),
        ]
        model = models.model(nodes, {"x": ["N", 256]}, outputs, models.constant("w", 256, 256))
        return of.profile(model, {"x": np.ones((64, 256), np.float32)}, threads=1, runs=20, seconds=0.1, roofs=False)

    reasons = [
        next(item.text for item in net(outputs).advice if item.rule == "not fused")
        for outputs in (["t", "s"], ["t", "h"])
    ]
    assert reasons[0].endswith("h is read by 2 nodes") and reasons[1].endswith("h is an output of the model")


@pytest.fixture(scope="module")
def measured() -> Profile:
    return of.profile(models.mlp(), X, threads=1, runs=10, seconds=0.05)


def test_a_trace_has_lanes_and_what_nodes_are(measured: Profile) -> None:
    events = json.loads(json.dumps(chrome_trace(measured)))["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "M"} == {"process_name", "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    runs = [event for event in spans if event["name"] == "run"]
    nodes = [event for event in spans if event["cat"] == "node"]
    assert len(runs) == measured.runs and len(nodes) == 2 * measured.runs
    assert min(event["ts"] for event in spans) == 0 and all(event["dur"] >= 0 for event in spans)
    first = next(event for event in nodes if event["args"]["node"] == "hidden")
    assert first["name"] == "opforge::MatMul" and first["args"]["made_from"] == "fc1, act"
    assert first["args"]["flops"] == 9216 and first["args"]["fused"] == "MatMul + relu"
    whole = next(event for event in runs if event["args"]["run"] == first["args"]["run"])
    assert whole["ts"] <= first["ts"] and first["ts"] + first["dur"] <= whole["ts"] + whole["dur"] + 1e-3


def test_a_trace_without_events_is_one_run() -> None:
    events = chrome_trace(profile_of(row("a", 0.5, **GOOD), row("b", 0.5, **GOOD)))["traceEvents"]
    assert [(event.get("ts"), event.get("dur")) for event in events[1:]] == [(0.0, 10.0), (10.0, 10.0)]


def test_stacks_go_from_the_module_to_the_node() -> None:
    profile = profile_of(row("a", 0.5, scopes=("encoder.fc",), sources=("net.py:3",)), row("b;c", 0.5))
    assert collapsed_stacks(profile) == (
        "model.onnx;encoder;fc;net.py:3;MatMul a 10000\nmodel.onnx;MatMul b,c 10000\n"
    )  # fmt: skip


@pytest.mark.parametrize("draw", [roofline, flame])
def test_pictures_are_sound(draw, measured: Profile) -> None:
    names = profile_of(row("<a & b>", 0.5, **GOOD), row("b", 0.4, bytes=100, flops=10), row("c", 0.1, moves="copy"))
    for profile in (measured, names):
        root = ElementTree.fromstring(draw(profile))
        assert root.tag.endswith("svg")
        titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
        assert any((profile.rows[0].name in (text or "")) for text in titles)
        for element in root.iter():
            numbers = [element.get(key) for key in ("x", "y", "cx", "cy", "width", "height", "r") if element.get(key)]
            assert all(np.isfinite(float(number)) for number in numbers if number)


def test_a_csv_has_a_row_per_node(measured: Profile) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(measured))))
    assert [r["name"] for r in rows] == ["hidden", "y"] and rows[0]["members"] == "fc1 act"
    assert float(rows[0]["p50_ns"]) == measured.rows[0].p50_ns and rows[0]["flops"] == "9216"


def run(*arguments: object):
    return CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)


def test_the_command_writes_files_and_json(tmp_path: Path) -> None:
    path = models.mlp_bin(tmp_path)
    names = {"csv": "n.csv", "trace": "t.json", "roofline": "r.svg", "flame": "f.svg", "stacks": "s.txt"}
    files = [part for key, name in names.items() for part in (f"--{key}", tmp_path / name)]
    done = run(path, "--threads", 1, "--runs", 5, "--seconds", 0.05, "--size", "N=32", *files, "--json")
    content = json.loads(done.output)
    assert content["engine"] == "opforge" and content["inputs"] == {"x": [32, 8]} and content["others"] == []
    assert [node["name"] for node in content["nodes"]] == ["hidden", "y"]
    assert content["machine"]["flops_per_s"] > 0 and content["run_ns"]["p50"] > 0
    assert all((tmp_path / name).stat().st_size > 20 for name in names.values())


def test_the_command_prints_tables(tmp_path: Path) -> None:
    import onnx

    onnx.save(models.mlp(), str(tmp_path / "mlp.onnx"))
    names = ["--engine", "opforge"] + (["--engine", "onnxruntime"] if has_onnxruntime() else [])
    text = run(tmp_path / "mlp.onnx", "--threads", 1, "--runs", 5, "--seconds", 0.05, *names).output
    assert "MatMul + relu" in text and "of roof" in text and "watching costs" in text
    assert ("side by side" in text and "onnxruntime / opforge" in text) == has_onnxruntime()


def test_many_engines_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns of so many would be folded to three characters."""
    profiles = [
        profile_of(row("first", 0.8, members=("a", "b")), row("second", 0.2, members=("c",)), engine=name)
        for name in ("opforge", "one", "two", "three")
    ]
    print_side_by_side(profiles, 20)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["side by side", next(line for line in lines if line.startswith("nodes of the model"))]
    assert lines[2].split("  ")[-1] == "its nodes" and "/ opforge" in lines[2]
    rows = [line.split() for line in lines[3:]]
    assert rows[0][:5] == ["b", "and", "1", "more", "opforge"]
    assert [words[0] for words in rows[1:4]] == ["one", "two", "three"]
    assert rows[8][:3] == ["all", "nodes", "opforge"] and [words[0] for words in rows[9:]] == ["one", "two", "three"]
    assert max(map(len, lines)) < 100


def has_onnxruntime() -> bool:
    from importlib.util import find_spec

    return find_spec("onnxruntime") is not None


@pytest.mark.parametrize(
    ("option", "words"), [("t.txt", "another kind than its name says"), ("nowhere/t.json", "no such folder")]
)
def test_the_command_refuses_files(tmp_path: Path, option: str, words: str) -> None:
    from opforge.errors import ArgumentError

    with pytest.raises(ArgumentError, match=words):
        run(models.mlp_bin(tmp_path), "--trace", tmp_path / option)
