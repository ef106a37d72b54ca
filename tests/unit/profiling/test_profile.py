"""``of.profile``: figures of known models, origins and places, other engines, errors."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import helper

import opforge as of
from opforge.errors import ArgumentError, UnsupportedError
from opforge.profiling import Machine, _runtime, machine, side_by_side
from opforge.profiling import _machine as machine_module
from tests.unit.profiling import models

X = {"x": np.ones((32, 8), np.float32)}


def test_figures_of_products() -> None:
    found = of.profile(models.mlp(), X, threads=1, runs=30, seconds=0.1)
    first, second = found.rows
    assert [(row.name, row.operator, row.group) for row in found.rows] == [
        ("hidden", "opforge::MatMul", "MatMul + relu"), ("y", "opforge::MatMul", "")
    ]  # fmt: skip
    assert (first.flops, second.flops) == (2 * 32 * 8 * 16 + 2 * 32 * 16, 2 * 32 * 16 * 4)  # bias and Relu
    # weights lie in blocks of 16 columns, of 4 columns in one of 8
    assert (first.bytes, second.bytes) == (4 * (32 * 8 + 8 * 16 + 16 + 32 * 16), 4 * (32 * 16 + 16 * 8 + 32 * 4))
    assert (first.members, second.members) == (("fc1", "act"), ("fc2",))
    assert first.calls == len(first.samples) == len(found.run_ns) == found.runs >= 30
    assert sum(row.share for row in found.rows) == pytest.approx(1)
    assert first.p50_ns <= first.p99_ns and first.gflops_per_s == pytest.approx(first.flops / first.p50_ns)
    assert found.nodes_ns <= np.median(found.run_ns) and 0 < found.outside < 1
    assert found.overhead is not None and len(found.plain_ns) and found.lost == 0
    (operator,) = found.operators
    assert (operator.nodes, operator.calls, operator.flops) == (2, 2 * first.calls, first.flops + second.flops)


def test_a_bin_is_profiled_as_it_is(tmp_path: Path) -> None:
    found = of.profile(models.mlp_bin(tmp_path), X, threads=1, runs=5, seconds=0.05, roofs=False)
    assert found.machine is None and found.rows[0].of_roof(None) is None
    assert found.rows[0].members == ("fc1", "act")
    assert found.as_dict()["nodes"][0]["of_roof"] is None


def test_threads_say_what_they_bring() -> None:
    model = models.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], {"x": ["N", 512]}, ["y"],
        models.constant("w", 512, 512),
    )  # fmt: skip
    found = of.profile(model, {"x": np.ones((256, 512), np.float32)}, threads=2, runs=20, seconds=0.2)
    (row,) = found.rows
    assert row.speedup is not None and row.speedup > 0 and found.threads in (1, 2)
    assert row.helped is None or 0 < row.helped <= 1


def test_layouts_and_copies_are_told_apart() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["a"], ["y"], name="turn", perm=[0, 2, 3, 1]),
    ]
    model = models.model(nodes, {"x": [1, 32, 16, 16]}, ["y"], models.constant("w", 32, 32, 3, 3))
    found = of.profile(model, {"x": np.ones((1, 32, 16, 16), np.float32)}, threads=1, runs=10, seconds=0.1)
    moves = {row.operator: row.moves for row in found.rows}
    assert moves["opforge::Conv"] == "" and "layout" in moves.values()
    assert found.share_of("layout") == pytest.approx(sum(r.share for r in found.rows if r.moves == "layout"))
    conv = next(row for row in found.rows if row.operator == "opforge::Conv")
    assert conv.flops == 2 * 32 * 256 * 32 * 9


@pytest.mark.torch
def test_places_reach_the_profile_through_the_bin(tmp_path: Path) -> None:
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(8, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.inner(x))  # the line of the model

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x) * 2

    of.torch.export(Net(), (torch.randn(4, 8),), tmp_path / "net.onnx", input_names=["x"])
    of.compile(tmp_path / "net.onnx", tmp_path / "net.bin")
    x = {"x": np.ones((4, 8), np.float32)}
    line = next(k for k, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "the line of" in text)
    for path in ("net.onnx", "net.bin"):
        (row,) = of.profile(tmp_path / path, x, threads=1, runs=3, seconds=0.05).rows
        assert {"body.inner", "body"} & set(row.scopes), row.scopes
        assert f"profiling/test_profile.py:{line}" in row.sources, row.sources
        assert not any("site-packages" in source for source in row.sources)


def test_onnx_runtime_side_by_side() -> None:
    pytest.importorskip("onnxruntime")
    x = {"x": np.ones((3200, 8), np.float32)}  # so many that no node takes less than ONNX Runtime's microsecond
    ours = of.profile(models.mlp(), x, threads=1, runs=5, seconds=0.05)
    theirs = of.profile(models.mlp(), x, engine="onnxruntime", threads=1, runs=7)
    assert theirs.runs == 7 and all(row.calls == 7 and len(row.samples) == 7 for row in theirs.rows)
    assert {name for row in theirs.rows for name in row.members} == {"fc1", "act", "fc2"}
    assert sum(row.flops or 0 for row in theirs.rows) == 100 * (2 * 32 * 8 * 16 + 2 * 32 * 16 + 2 * 32 * 16 * 4)
    by_members = {group.members: group for group in side_by_side([ours, theirs])}
    assert set(by_members) == {("fc1", "act"), ("fc2",)}
    group = by_members["fc1", "act"]
    assert group.nodes["opforge"] == ("MatMul + relu",) and group.nodes["onnxruntime"]
    assert all(time > 0 for time in by_members["fc2",].times.values())


def test_the_seconds_that_were_asked_for_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_runtime, "_MOST_RUNS", 60)
    clock = count(0, 20_000)  # each run takes 20 us
    monkeypatch.setattr(_runtime, "time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))
    found = of.profile(models.mlp(), X, threads=1, seconds=0.5, roofs=False)
    assert found.runs == len(found.plain_ns) == 60 and found.lost == 0
    assert found.every == 208, "60 times 208 runs of 20 us are half of the half second"


def test_refuses() -> None:
    with pytest.raises(ArgumentError, match="needs runs"):
        of.profile(models.mlp(), X, runs=0)
    with pytest.raises(ArgumentError, match="no engine 'nothing'"):
        of.profile(models.mlp(), X, engine="nothing")
    with pytest.raises(UnsupportedError, match="measures no nodes"):
        of.profile(models.mlp(), X, engine="reference")
    with pytest.raises(ArgumentError, match="inputs are missing"):
        of.profile(models.mlp(), {})


def test_other_engines_take_no_bin(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ArgumentError, match="does not take such a file") as caught:
        of.profile(models.mlp_bin(tmp_path), X, engine="onnxruntime")
    assert caught.value.expected == ".onnx"


def test_the_machine_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPFORGE_CACHE", str(tmp_path))
    monkeypatch.setattr(machine_module, "_SIZES", (1 << 14, 1 << 20))
    first = machine(1)
    assert first.flops_per_s > 1e8 and [size for size, _ in first.copies] == [1 << 14, 1 << 20]
    assert all(speed > 1e8 for _, speed in first.copies) and "CPUs" in first.identity
    assert machine(1) == first, "kept"
    (file,) = (tmp_path / "machine").iterdir()
    file.write_text(file.read_text().replace(first.identity, "another machine"))
    assert machine(1).identity == first.identity, "figures of another machine do not count"
    file.write_text("{")
    assert machine(1).threads == 1
    again = machine(1, remeasure=True)
    assert again.flops_per_s > 1e8 and machine(1) == again


def test_bandwidth_between_measured_sizes() -> None:
    known = Machine("m", 1, 1e11, ((1 << 10, 100.0), (1 << 20, 50.0), (1 << 30, 10.0)))
    assert [known.bytes_per_s(1 << k) for k in (5, 10, 15, 20, 25, 30, 35)] == [100, 100, 75, 50, 30, 10, 10]
    assert known.memory_bytes_per_s == 10


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_fused_and_blocked_nodes_of_others_stand_for_the_models(engine: str) -> None:
    pytest.importorskip(engine)
    x = {"x": np.ones((1, 3, 64, 64), np.float32)}
    ours = of.profile(models.convolutions(), x, threads=1, runs=3, seconds=0.05, roofs=False)
    theirs = of.profile(models.convolutions(), x, engine=engine, threads=1, runs=3, roofs=False)
    pairs = {("conv1", "relu1"), ("conv2", "relu2")}
    for profile in (ours, theirs):
        assert {row.members for row in profile.rows if row.members} == pairs
        assert {row.operator for row in profile.rows if not row.members} <= {
            row.operator for row in profile.rows if row.moves == "layout"
        }
    flops = {row.members: row.flops for row in theirs.rows if row.members}
    assert flops == {row.members: row.flops for row in ours.rows if row.members}
    assert flops["conv1", "relu1"] == 64 * 64 * 64 * (2 * 27 + 1)
    assert {group.members for group in side_by_side([ours, theirs]) if group.members} == pairs


def test_the_first_run_of_openvino_is_not_among_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles, and OpenVINO keeps but the mean of all runs."""
    pytest.importorskip("openvino")
    from opforge.engines.openvino import _engine

    # 9 ms for the first run and 1 ms for each of the other three are means of 9 and 3 ms.
    means = iter([[("a", "Kind", 9e6), ("same", "Kind", 5e3)], [("a", "Kind", 3e6), ("same", "Kind", 1e3)]])
    monkeypatch.setattr(_engine, "_means", lambda _: next(means))
    from opforge.verify import find_engine

    monkeypatch.setattr(_engine.OpenVino, "_open", lambda *_, **__: SimpleNamespace(run=dict, compiled=0, request=0))
    monkeypatch.setattr(_engine, "origins_of", lambda *_: {})
    rows = find_engine("openvino").profile(Path("net.onnx"), {}, runs=3)
    assert [(row.name, row.samples) for row in rows] == [("a", (1_000_000,) * 3), ("same", (0, 0, 0))]


def test_what_only_one_node_reads_belongs_to_it(tmp_path: Path) -> None:
    import onnx

    from opforge.profiling._model import ModelNodes

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Neg", ["w"], ["n"], name="constant"),
        helper.make_node("Tanh", ["a"], ["b"], name="tanh"),
        helper.make_node("Add", ["b", "n"], ["c"], name="sum"),
        helper.make_node("Exp", ["b"], ["d"], name="exp"),
    ]
    onnx.save(models.model(nodes, {"x": [4, 4]}, ["c", "d"], models.constant("w", 4, 4)), str(tmp_path / "m.onnx"))
    found = ModelNodes(tmp_path / "m.onnx", {"x": np.ones((4, 4), np.float32)})
    assert found.completed([("tanh",), ("sum",), ("exp",)]) == [("product", "tanh"), ("sum",), ("exp",)]
    assert found.completed([("sum",), ("exp",)]) == [("sum",), ("exp",)], "two read it"
    assert found.flops(("product", "tanh")) == 2 * 64 + 16 and found.flops(("nothing",)) is None
    assert found.bytes(("product", "tanh")) == 4 * 3 * 16, "what lies between them is not moved"
