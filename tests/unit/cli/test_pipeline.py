"""``opforge pipeline``: every step in its order, what follows from one that fails, and what a later run keeps."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from opforge import pipeline
from opforge.pipeline import STEPS, Ended, Settings, _record, run

STATES = ["passed", "failed", "up to date", "idle", "not run", "not asked"]


def test_an_operator_from_its_declaration_to_the_page(opforge, folder):
    assert opforge("new", "MyGate").code == 0
    words = ["pipeline", "my_gate:MyGate", "--package", "my_gate", "-o", "out", "--level", "quick", "--name", "gate"]
    words += ["--skip", "stress", "--skip", "bench", "--engine", "reference"]
    first = opforge(*words)
    assert first.code == 0, first.out
    assert [line.split(":")[0] for line in first.out.splitlines()[:10]] == [
        "✓ check", "✓ export", "✓ validate", "✓ simplify", "✓ compile", "✓ inspect", "✓ memory", "✓ compare",
        "✓ profile", "✓ report",
    ]  # fmt: skip
    made = {path.name for path in Path("out").iterdir()}
    assert made >= {"gate.onnx", "gate.simplified.onnx", "gate.bin", "report.html", "report.xml", "pipeline.json"}
    assert "MyGate" in Path("out/report.html").read_text(encoding="utf-8")

    # What is done is ticked by these results; what was skipped is not.
    listed = {row["asks"]: row for row in opforge("checklist", "out", "--json").json["checklist"]}
    left = [row["asks"] for row in listed.values() if row["stage"] != "monitor" and not row["passed"]]
    assert left == ["domains name their owner", "several callers get the same results; no crash, no errors"]
    assert (
        "local.test::MyGate version 1"
        in listed["domain, op_type and version of every operator are registered"]["words"]
    )

    again = opforge(*words, "--resume", "--json")
    assert again.code == 0
    states = {step["step"]: step["state"] for step in again.json["steps"]}
    assert set(states.values()) == {"up to date", "not asked"}, states

    # A package that changed is another package.
    path = Path("my_gate/op.py")
    path.write_text(path.read_text() + "\n# changed\n")
    changed = opforge(*words, "--resume", "--until", "export", "--json")
    assert [s["state"] for s in changed.json["steps"][:2]] == ["passed", "passed"]


class Commands:
    """Stands for opforge's commands: writes what ``-o`` names and says what it is told to say."""

    def __init__(self):
        self.ran, self.wrong = [], {}

    def __call__(self, words, *, seconds, folder=None):
        self.ran.append(list(words))
        code, content = self.wrong.get(words[0], (0, {"of": words[0]}))
        for flag, path in pairwise(words):
            if flag == "-o" and code == 0:
                Path(path).write_text(" ".join(words))
        if words[0] == "compare":
            content = {"rows": [{"engine": "torch"}, {"engine": "opforge"}], "reference": "openvino", **content}
        return Ended("opforge " + " ".join(words), code, 0.1, content)

    def of(self, name):
        return next(words for words in self.ran if words[0] == name)


@pytest.fixture
def commands(monkeypatch):
    made = Commands()
    monkeypatch.setattr(pipeline._run, "run_command", made)
    return made


def settings(tmp_path, **others):
    if not (tmp_path / "net.py").exists():
        (tmp_path / "net.py").write_text("def make(): ...")
    return Settings(**{"source": f"{tmp_path}/net.py:make", "folder": tmp_path / "out", "name": "net"} | others)


def states(made):
    assert all(step.state in STATES for step in made.steps)
    return {step.step: step.state for step in made.steps}


def test_words_of_the_commands(commands, tmp_path):
    more = (("compile", ("--tune",)),)
    s = settings(tmp_path, packages=["p", "q"], sizes=["N=8"], threads=2, level="deep", options=more)
    made = run(s)
    assert made.passed
    assert [words[0] for words in commands.ran] == [
        "check", "check", "export", "check", "simplify", "compile", "inspect", "inspect", "compare", "profile", "bench",
        "stress", "report",
    ]  # fmt: skip
    assert commands.ran[:2] == [["check", "p", "--level", "deep"], ["check", "q", "--level", "deep"]]
    both = ["--package", "p", "--package", "q"]
    assert commands.of("export") == ["export", s.source, "-o", str(s.exported), *both]
    assert commands.of("compile") == ["compile", str(s.simplified), "-o", str(s.program), *both, "--tune"]
    assert commands.of("compare")[4:6] == ["--torch", s.source]
    # What was compared and is an engine can be timed.
    assert commands.of("bench")[2:6] == ["--engine", "opforge", "--engine", "openvino"]
    assert commands.of("stress")[4:6] == ["--shapes", "N=8"]
    assert commands.of("report")[1:3] == [str(s.result("check")), str(s.result("check", 1))]
    assert {path.name for path in s.folder.glob("results/*")} >= {"check.json", "check-2.json", "validate.json"}


@pytest.mark.parametrize("source", ["net.onnx", "p:Operator", "saved"])
def test_what_is_no_factory_is_not_compared_as_a_module(commands, tmp_path, source):
    (tmp_path / "net.onnx").write_text("a model")
    source = str(tmp_path / source) if source.endswith(".onnx") else source
    made = run(settings(tmp_path, source=source))
    assert made.passed
    assert "--torch" not in commands.of("compare")
    assert (states(made)["export"] == "idle") == source.endswith(".onnx")


def test_a_step_that_fails_ends_what_needs_its_files(commands, tmp_path):
    run(settings(tmp_path))
    error = {"error": {"type": "UnsupportedError", "message": "net: no kernel\n  got: Foo"}}
    commands.wrong["compile"] = (2, error)
    made = run(settings(tmp_path))
    told = states(made)
    assert told["compile"] == "failed"
    # The .bin of the run before is still there, and is not taken for this one's.
    assert (tmp_path / "out" / "net.bin").is_file()
    assert {name for name, state in told.items() if state == "not run"} == {
        "inspect", "memory", "compare", "profile", "stress",
    }  # fmt: skip
    assert told["bench"] == "passed"
    assert told["report"] == "passed"
    assert not made.passed
    step = next(step for step in made.steps if step.step == "compile")
    assert step.reason == "net: no kernel got: Foo"
    assert next(step for step in made.steps if step.step == "memory").reason == "net.bin was not made"


def test_a_finding_fails_its_step_only(commands, tmp_path):
    commands.wrong["stress"] = (1, {"verdict": "leak"})
    made = run(settings(tmp_path))
    assert [step.step for step in made.steps if step.bad] == ["stress"]
    assert "found something: results/stress.json" in made.steps[-2].reason
    assert json.loads((tmp_path / "out" / "results" / "stress.json").read_text()) == {"verdict": "leak"}


def test_a_later_run_goes_on_where_one_ended(commands, tmp_path):
    commands.wrong["compile"] = (2, {"error": {"type": "UnsupportedError", "message": "no"}})
    run(settings(tmp_path))
    commands.wrong.clear()
    commands.ran.clear()
    made = run(settings(tmp_path), resume=True)
    told = states(made)
    assert [told[name] for name in ("export", "validate", "simplify", "bench")] == ["up to date"] * 3 + ["passed"]
    assert commands.ran[0][0] == "compile"
    commands.ran.clear()
    assert set(states(run(settings(tmp_path), resume=True)).values()) == {"idle", "up to date"}
    assert commands.ran == []
    # Without --resume everything is done anew; a file that somebody changed is made again.
    (tmp_path / "out" / "net.bin").write_text("damaged")
    told = states(run(settings(tmp_path), resume=True))
    assert told["simplify"] == "up to date"
    assert told["compile"] == "passed"
    (tmp_path / "net.pt").write_text("weights beside the module")
    assert states(run(settings(tmp_path), resume=True))["export"] == "passed"
    assert set(states(run(settings(tmp_path))).values()) == {"idle", "passed"}


def test_an_interrupt_loses_only_the_step_that_ran(commands, tmp_path, monkeypatch):
    def interrupted(words, **others):
        if words[0] == "compile":
            raise KeyboardInterrupt
        return commands(words, **others)

    monkeypatch.setattr(pipeline._run, "run_command", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(settings(tmp_path))
    monkeypatch.setattr(pipeline._run, "run_command", commands)
    told = states(run(settings(tmp_path), resume=True))
    assert told["simplify"] == "up to date"
    assert told["compile"] == "passed"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pipeline": 9}', '{"pipeline": 1}', '{"pipeline": 1, "steps": [3]}'])
def test_a_record_that_cannot_be_read_is_none(commands, tmp_path, text):
    s = settings(tmp_path)
    s.folder.mkdir()
    (s.folder / pipeline.RECORD).write_text(text)
    assert states(run(s, resume=True))["export"] == "passed"


def test_a_file_that_was_there_for_a_moment_is_no_source(tmp_path, monkeypatch):
    monkeypatch.setattr(_record, "sources", lambda _: [])
    alone = _record.fingerprint(settings(tmp_path), [], [])
    monkeypatch.setattr(_record, "sources", lambda _: [tmp_path / ".other.part"])  # of a program beside this one
    assert _record.fingerprint(settings(tmp_path), [], []) == alone


def test_steps_that_are_not_asked_for_keep_their_record(commands, tmp_path):
    run(settings(tmp_path))
    made = run(settings(tmp_path), asked=["bench"])
    assert states(made) == {step.name: "passed" if step.name == "bench" else "not asked" for step in STEPS}
    assert states(run(settings(tmp_path), resume=True))["compile"] == "up to date"


@pytest.mark.parametrize(
    "words, said",
    [
        (["pipeline"], "SOURCE is missing"),
        (["pipeline", "net.py:make"], "--output is missing"),
        (["pipeline", "none.onnx", "-o", "out"], "there is no such model"),
        (["pipeline", "a:B", "-o", "out", "--only", "check", "--skip", "check"], "no step is left"),
        (["pipeline", "a:B", "-o", "out", "--option", "bensh=--rounds 3"], "--option names a step and its words"),
        (["pipeline", "a:B", "-o", "out", "--option", "bench='--rounds"], "the words of --option do not end"),
    ],
)
def test_wrong_use(opforge, folder, words, said):
    result = opforge(*words)
    assert result.code == 2
    assert said in result.err
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "text, said",
    [
        ("source = [", "the file cannot be read"),
        ("sorce = 'x'", "no such entry"),
        ("packages = 'x'", "expected: a list"),
        ("level = ['x']", "expected: one value"),
    ],
)
def test_a_wrong_file_for_config(opforge, folder, text, said):
    Path("net.toml").write_text(text)
    result = opforge("pipeline", "--config", "net.toml")
    assert result.code == 2
    assert said in result.err


def test_words_from_a_file_yield_to_those_of_the_line(opforge, folder, commands):
    Path("net.py").write_text("")
    Path("net.toml").write_text('source = "net.py:make"\noutput = "out"\nlevel = "deep"\npackages = ["p"]\n')
    assert opforge("pipeline", "--config", "net.toml", "--level", "quick", "--until", "export").code == 0
    assert commands.ran == [
        ["check", "p", "--level", "quick"],
        ["export", "net.py:make", "-o", "out/net.onnx", "--package", "p"],
    ]
    record = json.loads(Path("out/pipeline.json").read_text())
    assert record["source"] == "net.py:make"
    assert record["passed"] is True
