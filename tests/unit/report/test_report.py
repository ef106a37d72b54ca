"""`opforge report`: every command's JSON becomes a section, in all four forms; what is missing says so."""

import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from opforge.errors import ArgumentError
from opforge.report import KINDS, Report, adapted, kind_of, name_origins, provenance, to_html, to_junit, to_markdown
from tests.unit.report import results


@pytest.fixture(scope="module")
def report():
    contents = results.everything()
    name_origins(contents.values())
    sections = [adapted(content, name) for name, content in contents.items()]
    return Report("net", sections, provenance([], [{"line": "opforge check net", "exit_code": 1, "seconds": 2.0}]))


@pytest.fixture
def files(tmp_path):
    paths = {}
    for name, content in results.everything().items():
        paths[name] = tmp_path / f"{name}.json"
        paths[name].write_text(json.dumps(content))
    return paths


def section(report, kind):
    return next(s for s in report.sections if s.kind == kind)


def test_every_kind_is_known_by_its_content():
    found = {name: kind_of(content) for name, content in results.everything().items()}
    assert all(found.values()), found
    assert {kind.name for kind in found.values()} == set(KINDS)
    assert kind_of({"rows": []}) is None
    assert kind_of([1]) is None


def test_verdicts_and_sentences(report):
    states = {s.kind: s.state for s in report.sections}
    assert states == {
        "check": "failed", "compare": "failed", "bench": "info", "suite": "failed", "profile": "info",
        "stress": "failed", "inspect": "info", "memory": "info",
    }  # fmt: skip
    assert report.word == "Failed"
    said = {s.kind: s.summary for s in report.sections}
    assert said["check"] == "9 checks of 2 subjects at the level quick, 1 failed."
    assert said["compare"] == "opforge, onnxruntime against reference: 2 of 4 outputs differ."
    assert "opforge is 1.25 times faster than openvino, the best of the others." in said["bench"]
    assert "NOT THREAD-SAFE: 3 of 100 calls" in said["stress"]
    assert "80 % of it in MatMul; 20.0 % moves data only" in said["profile"]


def test_the_matrix_and_the_map_of_errors(report):
    matrix = next(b for b in section(report, "check").blocks if b.title == "Operators and hosts")
    assert [c.name for c in matrix.columns] == ["host", "a::Good", "a::Bad"]
    assert [[getattr(v, "text", v) for v in row] for row in matrix.rows] == [
        ["verdict", "passed", "FAILED"],
        ["itself", "1", "1"],
        ["numpy", "2", "2"],
        ["torch", "1", "1 of 2 FAILED"],
        ["jax", "left out", "-"],
    ]
    assert [v.tone for v in matrix.rows[3][1:]] == ["good", "bad"]
    many = adapted({"passed": True, "reports": [results.check()["reports"][0]] * 5}, "check")
    across = next(b for b in many.blocks if b.title == "Operators and hosts")
    assert [c.name for c in across.columns] == ["subject", "verdict", "itself", "numpy", "torch", "jax"]
    heat = next(b for b in section(report, "compare").blocks if b.title == "Map of errors")
    assert [[getattr(v, "tone", v) for v in row] for row in heat.rows] == [
        ["y", "heat1", "heat5"],
        ["z", "heat0", "bad"],
    ]


def test_custom_and_fused_nodes_are_marked(report):
    program = next(s for s in report.sections if s.title.endswith("net.bin"))
    drawn = program.blocks[-2].svg
    assert 'class="box custom"' in drawn
    assert "◆ ⊕ MatMul" in drawn
    assert "with CustomGELU" in drawn
    assert "made from MatMul, com.example::CustomGELU" in drawn
    assert "1 with operators of domains of their own, 1 made from several" in program.summary


def test_a_profile_shows_roofs_advice_and_engines(report):
    blocks = {block.title: block for block in section(report, "profile").blocks}
    assert "9 GB/s from memory, 100 GB/s from the first cache, 500 GFLOP/s" in blocks["Roofline"].words
    assert blocks["Roofline"].svg.count("<circle") == 1
    (advice,) = blocks["What stands out"].rows
    assert advice == ("low arithmetic intensity", "MatMul does 2 operations per byte", "a, b", "fuse with neighbours")
    (group,) = blocks["Engines side by side"].rows
    assert group == ["n0, n1", 100.0, 300.0, "MatMul", "MatMul, Gelu"]
    assert [row[0] for row in blocks["Nodes by time"].rows] == [results.HOSTILE, "copy"]


class Page(HTMLParser):
    """Open elements, and what a reader of the page needs."""

    VOID = frozenset({"meta", "br", "img", "input", "link", "rect", "line", "circle", "polyline", "path"})

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.seen.append((tag, named, tuple(self.open)))
        self.ids += [named["id"]] if "id" in named else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag, (tag, self.getpos())


def test_the_page_is_well_formed_and_named(report):
    page = Page()
    text = to_html(report)
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert sum(tag == "main" for tag, *_ in page.seen) == 1
    assert {"header", "nav", "footer"} <= {tag for tag, *_ in page.seen}
    for tag, named, around in page.seen:
        if tag == "th":
            assert named["scope"] == ("col" if "thead" in around else "row")
        if "aria-labelledby" in named:
            assert named["aria-labelledby"] in page.ids
        if tag == "a":
            assert named["href"].removeprefix("#") in page.ids
        if tag == "svg":
            assert named["role"] == "img"
            assert named["aria-label"]
    assert not re.search(r"(src|href)=\"?(http|//)", text)
    assert len(text) < 400_000


def test_names_of_strangers_stay_text(report):
    page = to_html(report)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    root = ElementTree.fromstring(to_junit(report))
    assert any("<script>alert" in (node.text or "") for node in root.iter("failure"))
    assert "<script>" not in to_markdown(report)


def test_junit_counts(report):
    root = ElementTree.fromstring(to_junit(report))
    suites = {suite.get("name"): suite for suite in root}
    checks = suites["Checks"]
    assert (checks.get("tests"), checks.get("failures"), checks.get("skipped")) == ("10", "1", "1")
    assert len(list(checks.iter("testcase"))) == 10
    assert root.get("failures") == str(len(list(root.iter("failure"))))
    assert next(checks.iter("failure")).get("message").startswith("max |error| 3 at [0]")


def test_markdown_says_what_failed(report):
    text = to_markdown(report)
    assert text.startswith("## :x: Failed: net\n")
    assert (
        "| Stress | :x: Failed | 200 calls in 5 s by 4 callers in opforge: NOT THREAD-SAFE: 3 of 100 calls. |" in text
    )
    assert "- **threads**: NOT THREAD-SAFE: 3 of 100 calls; a static buffer" in text
    for table in re.findall(r"(?m)(?:^\|.*\n)+", text):
        cells = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(cells) == 1, table


def test_files_in_and_all_forms_out(opforge, files, tmp_path, monkeypatch):
    out = [tmp_path / f"report{suffix}" for suffix in (".html", ".xml", ".json", ".md")]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    words = [word for path in out for word in ("-o", path)]
    done = opforge("report", files["bench"], files["memory"], "--title", "my net", "--github", *words)
    assert done.code == 0, done.err
    assert "Nothing was judged: my net" in done.out
    assert (tmp_path / "summary.md").read_text() == out[3].read_text()
    content = json.loads(out[2].read_text())
    states = {s["kind"]: s["state"] for s in content["sections"]}
    assert states["bench"] == "info"
    assert states["check"] == "missing"
    assert "suite" not in states
    page = out[0].read_text()
    assert "No result of it was given. To get it: opforge check TARGET --json" in page
    assert "my net" in page
    # A report goes on: its results with one more.
    done = opforge("report", out[2], files["check"], "-o", tmp_path / "next.json", "--json")
    assert done.code == 1
    assert done.json["verdict"] == "Failed"
    assert [s["kind"] for s in done.json["sections"] if s["state"] != "missing"] == ["check", "bench", "memory"]
    assert str(files["check"]) in done.json["provenance"]["files"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.json"], "no.json: the file cannot be read\n  got: No such file or directory"),
        (["cut.json"], "give what a command printed with --json, whole"),
        (["odd.json"], "no command prints such JSON"),
        (["half.json"], "this looks like the JSON of opforge bench, but is not whole"),
        (["half.json", "-o", "page.pdf"], "no form of a report"),
        (["a", "b", "a"], "report: a target is named twice\n  got: a"),
        (["no.onnx"], "there is no such model"),
        (["odd.json", "--github"], "no file for the summary"),
    ],
)
def test_wrong_use(opforge, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    (tmp_path / "cut.json").write_text("{")
    (tmp_path / "odd.json").write_text('{"rows": 1}')
    (tmp_path / "half.json").write_text('{"rounds": 1, "rows": [{}], "model": "m"}')
    done = opforge("report", *words)
    assert done.code == 2
    assert said in done.err
    assert not (tmp_path / "report.html").exists()


def test_an_adapter_names_what_is_missing():
    with pytest.raises(ArgumentError, match="make it again: opforge compare MODEL --json"):
        adapted({"reference": "r", "rows": [{"engine": "e"}], "skipped": {}}, "x.json")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A .bin of one product, and its model."""
    import onnx
    from onnx import TensorProto, helper

    import opforge as of

    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", "N"]) for n in "xy")
    nodes = [helper.make_node("MatMul", ["x", "x"], ["t"]), helper.make_node("Softmax", ["t"], ["y"])]
    path = tmp_path_factory.mktemp("program") / "net.onnx"
    graph = helper.make_graph(nodes, "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    of.compile(path, path.with_suffix(".bin"))
    return path.with_suffix(".bin")


def test_a_target_is_gathered_by_its_own_commands(opforge, program, tmp_path):
    only = ["--only", "inspect", "--only", "memory", "--only", "bench"]
    done = opforge("report", program, *only, "--size", "N=8", "-o", tmp_path / "report.json", "--json")
    assert done.code == 0, done.err
    sections = {s["kind"]: s for s in done.json["sections"]}
    assert set(sections) == {"bench", "inspect", "memory"}
    assert sections["bench"]["state"] == "missing"
    assert "give the .onnx. To get it: opforge bench MODEL --json" in sections["bench"]["summary"]
    assert sections["memory"]["content"]["inputs"] == {"x": [8, 8]}
    lines = [row["line"] for row in done.json["provenance"]["commands"]]
    assert lines == [f"opforge inspect {program} --nodes", f"opforge inspect {program} --memory --size N=8"]
    assert len(done.json["provenance"]["files"][str(program)]) == 64


def test_a_damaged_file_and_a_command_that_breaks_have_failed(opforge, program, tmp_path, monkeypatch):
    damaged = tmp_path / "damaged.bin"
    damaged.write_bytes(program.read_bytes()[:200])
    words = ["--only", "inspect", "-o", tmp_path / "report.json", "--json"]
    done = opforge("report", damaged, *words)
    assert done.code == 1
    (section,) = done.json["sections"]
    assert section["state"] == "failed"
    assert "damaged.bin" in section["summary"]
    (tmp_path / "sitecustomize.py").write_text("import os, sys\nif 'inspect' in sys.orig_argv: os.abort()\n")
    monkeypatch.syspath_prepend(tmp_path)
    done = opforge("report", program, *words)
    assert done.code == 1
    (section,) = done.json["sections"]
    assert section["state"] == "failed"
    assert section["summary"].startswith("The command itself failed: exit code -6")


def test_several_targets_are_one_page_with_a_verdict_each(opforge, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert opforge("new", "MyGate", "--path", "gate").code == 0
    assert opforge("new", "RowScale", "--kernel", "--path", "rows").code == 0
    (tmp_path / "rows" / "cpu.cc").write_text((tmp_path / "rows" / "cpu.cc").read_text().replace("x(", "2 * x(", 1))
    words = ["--only", "check", "--only", "inspect", "--only", "memory"]
    done = opforge("report", "gate", "rows", program, *words, "-o", "page.html", "-o", "report.json", "--json")
    assert done.code == 1, done.err
    checks, *others = done.json["sections"]
    assert (checks["kind"], checks["state"]) == ("check", "failed")
    subjects = [report["subject"] for report in checks["content"]["reports"]]
    assert subjects == ["local.test::MyGate", "local.test::RowScale", "local.test::RowScaleGradW", str(program)]
    named = {section["title"]: section["state"] for section in others}
    assert named["Memory plan: gate"] == named[f"Memory plan: {program}"] == "info"
    assert named["Memory plan: rows"] == "missing", "of two operators"
    page = (tmp_path / "page.html").read_text()
    anchors = re.findall(r'id="([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    rows = re.search(r"Operators and hosts.*?</table>", page, re.DOTALL)
    assert rows and "verdict" in rows[0]
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", rows[0]))
    assert "local.test::MyGate passed" in plain and "local.test::RowScale FAILED" in plain, plain
    lines = [row["line"] for row in done.json["provenance"]["commands"]]
    assert "opforge export gate:MyGate -o operator.onnx" in " | ".join(lines)
