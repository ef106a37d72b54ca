"""``opforge checklist``: each row by what a pipeline left, and what becomes of a row whose files changed."""

import json
import shutil
from pathlib import Path

import onnx
import pytest

import opforge as of
from opforge.monitor import fingerprint
from opforge.pipeline import CHECKLIST, STAGES
from opforge.pipeline._record import file_hash
from tests.unit.monitor.lines import steady, written
from tests.unit.profiling.models import mlp

ROWS = [
    {"check": check, "case": "", "host": "", "dtype": "", "passed": True, "detail": ""}
    for check in ("values", "drawn", "gradient", "second derivative")
]


def result(**changes):
    """What the commands print, as far as it is read."""
    content = {
        "check": {"reports": [{"rows": ROWS}]},
        "validate": {"reports": [{"rows": [{**ROWS[0], "check": check} for check in ("registry", "shapes")]}]},
        "simplify": {"nodes": {"before": 5, "after": 3}},
        "compile": {},
        "inspect": {"layouts": {"plain": 4, "nhwc16": 2}, "conversions": ["a"]},
        "compare": {
            "reference": "onnxruntime",
            "rows": [{"engine": "opforge", "output": "y", "passed": True, "max_abs": 1e-7, "detail": ""}],
        },
        "profile": {
            "model": "net.bin", "inputs": {"x": [4, 8]}, "threads": 1,
            "nodes": [{"operator": "MatMul", "run_ns": 120_000.0}, {"operator": "Softmax", "run_ns": 60_000.0}],
        },
        "stress": {
            "runs": 99,
            "verdicts": [{"check": c, "passed": True, "words": f"good {c}", "detail": ""}
                         for c in ("process", "errors", "repeatable", "threads", "memory")],
        },
    }  # fmt: skip
    return {**content, **changes}


def record(folder: Path, results, states=None, packages=("my_ops",)):
    """Write a pipeline's folder about a small model; ``states`` replace "passed"."""
    out = folder / "out"
    (out / "results").mkdir(parents=True, exist_ok=True)
    onnx.save(mlp(), out / "net.onnx")
    shutil.copy(out / "net.onnx", out / "net.simplified.onnx")
    if not (out / "net.bin").exists():
        of.compile(out / "net.simplified.onnx", out / "net.bin")
    made = {"export": ["out/net.onnx"], "simplify": ["out/net.simplified.onnx"], "compile": ["out/net.bin"]}
    steps = [
        {"step": "export", "state": "passed", "reason": "", "files": {"out/net.onnx": file_hash(out / "net.onnx")}}
    ]
    for step, content in results.items():
        path = Path("out/results") / f"{step}.json"
        path.write_text(json.dumps(content))
        state = (states or {}).get(step, "passed")
        names = [str(path), *made.get(step, ())] if state in ("passed", "failed") else []
        reason = "net.bin was not made" if state == "not run" else ""
        files = {name: file_hash(Path(name)) for name in names}
        steps.append({"step": step, "state": state, "reason": reason, "files": files})
    content = {"pipeline": 1, "source": "net.py:make", "name": "net", "folder": "out", "packages": list(packages)}
    (out / "pipeline.json").write_text(json.dumps({**content, "steps": steps}))


@pytest.fixture
def done(folder, monkeypatch):
    """A folder where everything is done, a log of the same .bin included; its package is not imported."""
    monkeypatch.setattr("opforge.cli.commands.checklist.load_packages", lambda packages: None)
    record(folder, result())
    written(folder / "out/net.jsonl", steady(fingerprint=fingerprint(folder / "out/net.bin")))
    return folder


def answers(said):
    return {row["asks"]: row for row in said.json["checklist"]}


def test_everything_done(opforge, done):
    said = opforge("checklist", "out", "--json")
    assert said.code == 0, said.out
    assert said.json["passed"] is True
    rows = said.json["checklist"]
    assert [row["asks"] for row in rows] == [item.asks for item in CHECKLIST]
    assert list(dict.fromkeys(row["stage"] for row in rows)) == list(STAGES)
    assert all(row["passed"] is True and not row["command"] and row["words"] for row in rows)
    words = " | ".join(row["words"] for row in rows)
    for expected in (
        "nodes: 5, then 3", "opforge against onnxruntime: at most 1e-07 apart", "plain 4, nhwc16 2; conversions: 1",
        "checksums hold", "loaded; no operator needs a library", "good process, good errors", "2 checks passed",
        "the model has no operators of its own", "memory holds (2400 runs)",
    ):  # fmt: skip
        assert expected in words


def test_nothing_done_names_the_commands(opforge, done):
    (done / "out/net.jsonl").unlink()
    (done / "out/net.bin").unlink()
    record(done, {}, packages=("my_ops", "a b"))
    (done / "out/net.bin").unlink()
    said = opforge("checklist", "out")
    assert said.code == 1
    assert "  - values agree with the reference: not done\n" in said.out
    command = "opforge pipeline net.py:make --package my_ops --package 'a b' -o out --only check\n"
    assert f"    to do: {command}" in said.out
    assert "the .bin is loaded, with its operators' libraries: not done: there is no .bin yet" in said.out
    assert "to do: opforge monitor out/net.bin --seconds 60 --log out/net.jsonl" in said.out
    assert said.out.endswith(f"\n1 of {len(CHECKLIST)} done\n")


@pytest.mark.parametrize(
    ("changes", "asks", "words"),
    [
        (
            {"check": {"reports": [{"rows": [{**ROWS[2], "passed": False, "detail": "0.5 for 0.25"}]}]}},
            "gradients agree with finite differences, second ones too",
            "1 of 1 checks failed: gradient: 0.5 for 0.25",
        ),
        (
            {"validate": {"reports": [{"rows": [{**ROWS[0], "check": "registry", "passed": False, "detail": "no"}]}]}},
            "domain, op_type and version of every operator are registered",
            "1 of 1 checks failed: registry: no",
        ),
        (
            {"compare": {"reference": "torch", "rows": [
                {"engine": "opforge", "output": "y", "passed": False, "max_abs": 1, "detail": "max |error| 1"}]}},
            "the .bin gives the source's results",
            "opforge, output y: max |error| 1",
        ),
        (
            {"compare": {"reference": "torch", "rows": []}},
            "the .bin gives the source's results",
            "nothing was compared",
        ),
        (
            {"stress": {"runs": 1, "verdicts": [
                {"check": "threads", "passed": False, "words": "NOT THREAD-SAFE", "detail": "3 of 9"}]}},
            "several callers get the same results; no crash, no errors",
            "NOT THREAD-SAFE; 3 of 9",
        ),
    ],
)  # fmt: skip
def test_what_failed_is_said(opforge, done, changes, asks, words):
    record(done, result(**changes), states=dict.fromkeys(changes, "failed"))
    said = opforge("checklist", "out", "--json")
    assert said.code == 1
    assert answers(said)[asks]["passed"] is False
    assert answers(said)[asks]["words"] == words
    assert answers(said)[asks]["command"]


def test_what_was_not_run_or_changed_since_is_not_done(opforge, done):
    record(done, result(), states={"stress": "not run"})
    (done / "out/results/inspect.json").write_text("{}")
    with (done / "out/net.onnx").open("ab") as stream:
        stream.write(b"\x3a\x00")  # another model, after all of it was validated
    rows = answers(opforge("checklist", "out", "--json"))
    said = {asks: row["words"] for asks, row in rows.items() if row["passed"] is None}
    assert said == {
        "several callers get the same results; no crash, no errors": "not done: net.bin was not made",
        "layouts are recorded": "done, but inspect.json changed since",
        "the model is sound: domains, imports, nodes, shapes": "done, but net.onnx changed since",
        "domain, op_type and version of every operator are registered": "done, but net.onnx changed since",
        "it is simplified": "done, but net.onnx changed since",
    }


def test_the_bin_is_looked_at_here(opforge, done):
    data = bytearray((done / "out/net.bin").read_bytes())
    data[len(data) // 2] ^= 1
    (done / "out/net.bin").write_bytes(data)
    rows = answers(opforge("checklist", "out", "--json", "--stage", "convert", "--stage", "deploy"))
    assert len(rows) == sum(item.stage in ("convert", "deploy") for item in CHECKLIST)
    assert rows["header, section table and checksums of the .bin are sound"]["passed"] is False
    assert rows["the .bin is loaded, with its operators' libraries"]["passed"] is False
    assert "checksum" in rows["the .bin is loaded, with its operators' libraries"]["words"]


def test_a_library_that_is_loaded_is_named(opforge, done, gate):
    shutil.copy(gate / "row.bin", done / "out/net.bin")
    rows = answers(opforge("checklist", "out", "--json", "--stage", "deploy"))
    loaded = rows["the .bin is loaded, with its operators' libraries"]
    assert loaded["words"] == "custom op loaded: local.test::RowScale"
    # The stress was of another file.
    assert rows["several callers get the same results; no crash, no errors"]["words"].endswith("net.bin changed since")


def test_logs_say_whether_it_stands_still(opforge, done):
    mine = fingerprint(done / "out/net.bin")
    grown = steady(fingerprint=mine)
    for k, line in enumerate(grown):
        line["resident_bytes"] += k << 20
        line["operators"] = {"MatMul": 240_000.0, "Softmax": 60_000.0}
    written(done / "grown.jsonl", grown)
    rows = answers(opforge("checklist", "out", "--json", "--stage", "monitor", "--log", "grown.jsonl"))
    assert {asks: row["passed"] for asks, row in rows.items()} == {
        "no errors": True,
        "latency is stable": True,
        "memory does not grow": False,
        "no operator became slower": False,  # than in the pipeline's profile
    }
    written(done / "other.jsonl", steady())
    rows = answers(opforge("checklist", "out", "--json", "--stage", "monitor", "--log", "other.jsonl"))
    assert {row["words"] for row in rows.values()} == {"not done: the logs are of another file"}
    written(done / "short.jsonl", steady(fingerprint=mine)[:2])
    rows = answers(opforge("checklist", "out", "--json", "--stage", "monitor", "--log", "short.jsonl"))
    assert [row["passed"] for row in rows.values()] == [True, None, None, None]


def test_wrong_use(opforge, folder):
    (folder / "empty").mkdir()
    said = opforge("checklist", "empty")
    assert said.code == 2
    assert "no pipeline wrote there" in said.err
    record(folder, {}, packages=())
    said = opforge("checklist", "out", "--stage", "train")
    assert said.code == 2
    assert f"expected: {', '.join(STAGES)}" in said.err
    shutil.move("out", "moved")
    said = opforge("checklist", "moved")
    assert said.code == 2
    assert "the folder was moved" in said.err
