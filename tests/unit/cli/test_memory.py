"""`opforge inspect --memory`: figures and picture of the memory plan; runs without reuse."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.cli._memory import memory_plan
from opforge.report import memory_picture

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chains with a wide middle, a residual, a view and results that may be written over inputs."""
    rng = np.random.default_rng(0)
    weights = {"a": (8, 64), "b": (64, 8), "c": (8, 8)}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["wide"]),
        helper.make_node("Softmax", ["wide"], ["soft"], axis=-1),
        helper.make_node("MatMul", ["soft", "b"], ["narrow"]),
        helper.make_node("Reshape", ["narrow", "shape"], ["seen"]),
        helper.make_node("Reshape", ["seen", "back"], ["again"]),
        helper.make_node("MatMul", ["again", "c"], ["z"]),
        helper.make_node("Add", ["z", "narrow"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 8])],
        [onnx.numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()]
        + [onnx.numpy_helper.from_array(np.array(v), n) for n, v in (("shape", [-1, 4]), ("back", [-1, 8]))],
    )
    path = tmp_path_factory.mktemp("memory") / "model.bin"
    of.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def test_figures_hold(model):
    content, _ = memory_plan(model, {"rows": 100})
    buffers = content["buffers"]
    assert content["inputs"] == {"x": [100, 8]}
    assert any(b["size"] == 100 * 64 * 4 for b in buffers)
    assert content["peak_bytes"] >= content["lower_bound_bytes"] >= max(b["size"] for b in buffers)
    assert content["peak_bytes"] == max(-(-(b["offset"] + b["size"]) // 64) * 64 for b in buffers)
    for a in buffers:
        for b in buffers:
            together = a["first"] <= b["last"] and b["first"] <= a["last"]
            apart = a["offset"] + a["size"] <= b["offset"] or b["offset"] + b["size"] <= a["offset"]
            assert a is b or apart or not together, (a, b)


def test_command_prints_and_draws(opforge, model, tmp_path):
    out = tmp_path / "plan.svg"
    arguments = ["inspect", model, "--memory", "--size", "rows=100", "--out", out]
    done = opforge(*arguments)
    assert done.code == 0, done.err
    assert "lower bound (largest set that lives at one time)" in done.out
    content = opforge(*arguments, "--json").json
    drawn = ElementTree.parse(out).getroot()
    titles = [title.text for title in drawn.iter(f"{SVG}title")]
    assert len(titles) == len(content["buffers"]) > 0
    assert any("25.0 KiB" in str(title) for title in titles)
    texts = " ".join(text.text or "" for text in drawn.iter(f"{SVG}text"))
    assert "arena, KiB" in texts
    assert "node of the program" in texts


def test_names_are_escaped(model):
    content, _ = memory_plan(model, {})
    content["buffers"][0]["name"] = "<a & b>"
    titles = ElementTree.fromstring(memory_picture(content)).iter(f"{SVG}title")
    assert any("<a & b>" in str(title.text) for title in titles)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--memory", "--out", "plan.png"], "the picture is an SVG"),
        (["--memory", "--size", "columns=3"], "no input has a dimension columns"),
        (["--size", "rows=3"], "--size and --out are for --memory"),
    ],
)
def test_wrong_use(opforge, model, arguments, words):
    done = opforge("inspect", model, *arguments)
    assert done.code == 2
    assert words in done.err


def test_a_program_without_plan_says_why(opforge, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, None])],
    )
    path = tmp_path / "dynamic.bin"
    of.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    done = opforge("inspect", path, "--memory")
    assert done.code == 2
    assert "this program has no memory plan" in done.err


def test_no_reuse_gives_equal_bits_and_a_place_for_each_value(model):
    feeds = {"x": np.random.default_rng(1).standard_normal((33, 8)).astype(np.float32)}
    usual, apart = of.Session(model), of.Session(model, reuse=False)
    assert usual.run(feeds)["y"].tobytes() == apart.run(feeds)["y"].tobytes()
    assert apart.statistics["views"] == apart.statistics["in_place"] == 0
    assert all(buffer.values <= 1 for buffer in apart.buffers)
    spans = sorted((b.offset, b.offset + b.size) for b in apart.buffers)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert apart.statistics["arena_bytes"] > usual.statistics["arena_bytes"]
