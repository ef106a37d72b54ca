"""Tuning: what it measures becomes attributes, and tuned files give the same results."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

import opforge as of
from opforge.bin import compiler, tuning
from opforge.bin import format as bin_format
from opforge.bin.session import Session
from opforge.cli import main
from tests.unit.compiler.graphs import model, node

RNG = np.random.default_rng(31)


def _random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _net():
    nodes = [
        node("Conv", "x a", "one", kernel_shape=[1, 1]),
        node("Relu", "one", "r"),
        node("Conv", "r b", "two", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Conv", "two c", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
    ]
    constants = {"a": _random(64, 24, 1, 1), "b": _random(80, 64, 3, 3) * 0.1, "c": _random(88, 80, 3, 3) * 0.1}
    return model(nodes, {"x": ["N", 24, 20, 17]}, constants)


def _choices():
    for name, rows in tuning.CANDIDATES.items():
        for row in rows:
            yield pytest.param(name, row, id=f"{name} {row}")


@pytest.mark.parametrize(("algorithm", "choice"), list(_choices()))
def test_every_candidate_gives_the_same_results(algorithm, choice, tmp_path, monkeypatch):
    proto, x = _net(), {"x": _random(3, 24, 20, 17)}
    path, tuned = tmp_path / "plain.bin", tmp_path / "tuned.bin"
    of.compile(proto, path)
    expected = Session(path, threads=1).run(x)["y"]
    keys = {"direct": ("one", "y"), "winograd": ("two",)}[algorithm]
    monkeypatch.setattr(tuning, "try_tune", lambda *_: ({key: choice for key in keys}, ["as said"], []))
    report = of.compile(proto, tuned, tune=True)
    assert report.tuned == ["as said"]
    attributes = [n.attributes for n in bin_format.read(tuned).program.graphs[0].nodes if n.op == "Conv"]
    if "algorithm" not in choice:
        assert sum(choice.items() <= a.items() for a in attributes) == len(keys)
    got = [Session(tuned, threads=n).run(x)["y"] for n in (1, 2)]
    assert np.array_equal(*got)
    if "algorithm" in choice:
        np.testing.assert_allclose(got[0], expected, rtol=1e-3, atol=1e-3)
    else:
        assert np.array_equal(got[0], expected), "cuts and tiles change no bit"


def test_tuning_measures_each_convolution(monkeypatch):
    monkeypatch.setattr(tuning, "RUNS", 1)
    seen = []
    times = {"one": 1e-3, "two": 1e-3, "y": 1e-3}

    def measured(graph, program, shapes):
        found = [n.attributes for n in graph.nodes if n.is_made("Conv")]
        seen.append([a["algorithm"] for a in found])
        assert set(real(graph, program, shapes)) == set(times)
        return {a["key"]: times[a["key"]] * (0.5 if a.get("tile_blocks") == 2 else 1) for a in found}

    real = tuning._times
    monkeypatch.setattr(tuning, "_times", measured)
    program, report = compiler.compile_program(_net(), tune=True)
    assert report.tuned == ["one: tile_blocks 2, 1000 -> 500 us", "y: tile_blocks 2, 1000 -> 500 us"]
    assert ["direct", "direct", "direct"] in seen
    tiles = [n.attributes.get("tile_blocks") for n in program.graphs[0].nodes if n.op == "Conv"]
    assert tiles == [2, None, 2]


def test_a_model_that_cannot_run_alone_is_compiled_untuned(monkeypatch):
    nodes = [node("Conv", "x w", "c", kernel_shape=[1, 1]), node("Reshape", "c shape", "y")]
    constants = {"w": _random(8, 8, 1, 1), "shape": np.array([1, 8, 9])}
    program, report = compiler.compile_program(model(nodes, {"x": ["N", 8, "H", "W"]}, constants), tune=True)
    assert any(n.op == "Conv" for n in program.graphs[0].nodes)
    assert report.warnings[0].startswith("not tuned, since the model could not be run here: ")


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "RUNS", 1)
    source, target = tmp_path / "net.onnx", tmp_path / "net.bin"
    onnx.save(_net(), str(source))
    assert main(["compile", str(source), "-o", str(target), "--tune", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["report"]["tuned"], list)
    assert Session(target).run({"x": _random(1, 24, 20, 17)})["y"].shape == (1, 88, 10, 9)


def test_shapes_to_measure_with(tmp_path, monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(
        tuning, "_times", lambda graph, program, shapes: seen.append(shapes) or {"one": 1.0, "two": 1.0, "y": 1.0}
    )
    compiler.compile_program(_net(), tune={"x": [2, 24, 20, 17]})
    source = tmp_path / "net.onnx"
    onnx.save(_net(), str(source))
    assert main(["compile", str(source), "--tune-shape", "x=3x24x20x17"]) == 0
    assert {tuple(s["x"]) for s in seen} == {(2, 24, 20, 17), (3, 24, 20, 17)}
    assert main(["compile", str(source), "--tune-shape", "x=3*24"]) == 2
    assert "INPUT=1x3x640x640" in capsys.readouterr().err
