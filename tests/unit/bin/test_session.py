"""Sessions: plans, views, memory, threads, control flow, weights, limits."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opforge.bin.format import read
from opforge.bin.program import GraphRef, Layout
from opforge.bin.session import Session
from opforge.errors import ArgumentError, CorruptFileError, OpforgeError, UnsupportedError
from tests.unit.bin.programs import Builder, attention_like

F32 = np.float32


def test_shape_arithmetic_is_planned_away(tmp_path: Path) -> None:
    session = attention_like(tmp_path)
    x = np.random.default_rng(0).standard_normal((2, 5, 12), F32)
    result = session.run({"x": x})
    np.testing.assert_array_equal(result["y"], x)
    np.testing.assert_array_equal(result[session.outputs[1].name], x.reshape(2, 5, 3, 4).transpose(0, 2, 1, 3))
    assert session.statistics["nodes"] == 10
    assert session.statistics["executed_nodes"] == 2
    assert not session.statistics["dynamic"]


def test_one_plan_per_shape_and_a_bounded_number_of_them(tmp_path: Path) -> None:
    session = attention_like(tmp_path)
    for length in [*range(1, 40), 3, 3]:
        x = np.full((1, length, 12), length, F32)
        np.testing.assert_array_equal(session.run({"x": x})["y"], x)
    assert session.statistics["plans"] == 16


def chain(folder: Path, **options: Any) -> tuple[Session, Builder]:
    """Many copies of different sizes, so that memory is reused."""
    b = Builder()
    x = b.input("x", F32, [1, 8, 30])
    value = x
    for k in range(6):
        value = b.node("Concat", [value, x], F32, [1, 8, 30 * (k + 2)], axis=2)
        value = b.node("Transpose", [value], F32, perm=[0, 2, 1])
        value = b.node("Transpose", [value], F32, perm=[0, 2, 1])
    b.output(value)
    return b.session(folder, **options), b


def test_memory_is_reused_and_no_reuse_gives_equal_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = chain(tmp_path)
    x = np.random.default_rng(1).standard_normal((1, 8, 30), F32)
    first = next(iter(session.run({"x": x}).values()))
    np.testing.assert_array_equal(first, np.tile(x, 7))
    statistics = session.statistics
    monkeypatch.setenv("OPFORGE_NO_REUSE", "1")
    other, _ = chain(tmp_path)
    np.testing.assert_array_equal(next(iter(other.run({"x": x}).values())), first)
    assert statistics["live_bytes"] <= statistics["arena_bytes"] < other.statistics["arena_bytes"]


def test_shared_session_under_concurrent_callers(tmp_path: Path) -> None:
    session = attention_like(tmp_path, threads=2)
    failures: list[str] = []

    def work(seed: int) -> None:
        for k in range(60):
            x = np.full((1 + seed % 3, 1 + (k + seed) % 9, 12), seed * 1000 + k, F32)
            if not np.array_equal(session.run({"x": x})["y"], x):
                failures.append(f"{seed}/{k}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_runs_after_fork(tmp_path: Path) -> None:
    session = attention_like(tmp_path, threads=2)
    x = np.ones((4, 300, 12), F32)
    session.run({"x": x})
    gc.freeze()  # what other tests left may have threads, which the child would wait for when it collects it
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(session.run({"x": x})["y"], x) else 1)
    gc.unfreeze()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_data_dependent_shapes(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, ["N"])
    found = b.node("NonZero", [x], np.int64, [1, None])
    turned = b.node("Transpose", [found], np.int64, [None, 1], perm=[1, 0])
    b.output(b.node("GatherND", [x, turned], F32, [None], name="kept"), found)
    session = b.session(tmp_path)
    x_value = np.array([0, 1, -0.0, np.nan, 5], F32)
    result = session.run({"x": x_value})
    np.testing.assert_array_equal(result["kept"], x_value[[1, 3, 4]])
    assert session.statistics["dynamic"]
    assert session.run({"x": np.zeros(3, F32)})["kept"].shape == (0,)


def branch(program: Any, name: str, source: int, op: str, extra: list[int]) -> Builder:
    b = Builder(program, name)
    b.graph.captures += [source, *extra]
    b.output(b.node(op, [source, *extra], F32, [None], **({"axis": 0} if op == "Concat" else {})))
    return b


def test_if_runs_one_branch(tmp_path: Path) -> None:
    from opforge.bin.program import GraphRef

    b = Builder()
    condition, x = b.input("condition", np.bool_, []), b.input("x", F32, ["N"])
    then = branch(b.program, "then", x, "Identity", [])
    other = branch(b.program, "else", x, "Concat", [x])
    other.graph.captures[:] = [x]
    y = b.node(
        "If", [condition], F32, [None], then_branch=GraphRef(then.index), else_branch=GraphRef(other.index), name="y"
    )
    b.output(b.node("Concat", [y, x], F32, [None], axis=0, name="z"))
    session = b.session(tmp_path)
    x_value = np.arange(3, dtype=F32)
    assert session.run({"condition": np.bool_(True), "x": x_value})["z"].size == 6
    assert session.run({"condition": np.bool_(False), "x": x_value})["z"].size == 9


def test_loop_carries_and_stacks(tmp_path: Path) -> None:
    from opforge.bin.program import GraphRef

    b = Builder()
    trips, start = b.input("trips", np.int64, []), b.input("start", np.int64, [])
    body = Builder(b.program, "body")
    i, _, total = body.input("i", np.int64, []), body.input("going", np.bool_, []), body.input("total", np.int64, [])
    grown = body.node("Add", [total, i], np.int64, [])
    body.output(body.constant(np.bool_(True)), grown, i)
    final, counts = b.node("Loop", [trips, -1, start], np.int64, outputs=2, name="loop", body=GraphRef(body.index))
    b.output(final, counts)
    session = b.session(tmp_path)
    result = list(session.run({"trips": np.int64(5), "start": np.int64(100)}).values())
    assert result[0] == 110
    assert result[1].tolist() == [0, 1, 2, 3, 4]
    assert next(iter(session.run({"trips": np.int64(0), "start": np.int64(7)}).values())) == 7


def test_unknown_operators_are_all_named(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, [1])
    b.output(b.node("Nonsense", [b.node("com.Unknown", [x], domain="d")], since=1))
    with pytest.raises(UnsupportedError) as caught:
        b.session(tmp_path)
    assert "no kernel for 2 operators" in str(caught.value)
    assert "d::com.Unknown:25, ::Nonsense:1" in str(caught.value)


def test_an_unknown_optional_node_is_left_out(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, [2])
    probe = b.node("Probe", [x], F32, [2], domain="com.example", since=1)
    b.graph.nodes[0].optional = True
    b.output(b.node("Identity", [x], F32, [2], name="y"))
    assert b.session(tmp_path).run({"x": np.ones(2, F32)})["y"].tolist() == [1, 1]
    b.output(probe)
    with pytest.raises(UnsupportedError, match=r"com\.example::Probe:1"):
        b.session(tmp_path)


def test_a_kernel_error_names_the_node(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, ["N"])
    b.output(b.node("Gather", [x, b.constant(np.array([7]))], F32, [1], name="picked"))
    with pytest.raises(
        ArgumentError, match=r"node 0 Gather \(output 'picked'\): index 7 is out of range for a dimension of 3"
    ):
        b.session(tmp_path).run({"x": np.zeros(3, F32)})


def test_options(tmp_path: Path) -> None:
    path = Builder().save(tmp_path / "m.bin")
    with pytest.raises(ArgumentError, match="there is no such file"):
        Session(tmp_path / "none.bin")
    with pytest.raises(ArgumentError, match="verify: unknown way to verify\n  expected: 'lazy' or 'full'"):
        Session(path, verify="never")
    with pytest.raises(ArgumentError, match="threads must be at least 1"):
        Session(path, threads=0)
    with pytest.raises(
        UnsupportedError, match="this CPU lacks what the file was compiled for\n  expected: CPU features: warp_drive"
    ):
        b = Builder()
        b.program.cpu_features = ["warp_drive"]
        b.session(tmp_path)


def weights_model(folder: Path) -> Path:
    b = Builder()
    x = b.input("x", F32, [1, 600_000])
    b.output(b.node("Concat", [x, b.constant(np.ones((1, 600_000), F32), "w")], F32, axis=0))
    return b.save(folder / "w.bin")


@pytest.mark.parametrize("mmap", [True, False])
def test_damaged_weights_are_found_on_first_touch_or_at_load(tmp_path: Path, mmap: bool) -> None:
    path = weights_model(tmp_path)
    section = next(s for s in read(path).sections if s.name == "weights")
    data = bytearray(path.read_bytes())
    data[section.offset + 2_000_000] ^= 1
    path.write_bytes(data)
    session = Session(path, mmap=mmap)
    with pytest.raises(CorruptFileError, match="section 'weights', block 1: a block of the weights is damaged"):
        session.run({"x": np.zeros((1, 600_000), F32)})
    with pytest.raises(CorruptFileError, match="section 'weights', block 1"):
        Session(path, mmap=mmap, verify="full")


def test_stored_plan_is_used_when_it_is_proven(tmp_path: Path) -> None:
    from opforge.bin.format import PlanEntry

    b = Builder()
    x = b.input("x", F32, [2, 16])
    a = b.node("Transpose", [x], F32, [16, 2], perm=[1, 0])
    y = b.node("Transpose", [a], F32, [2, 16], perm=[1, 0])
    z = b.node("Concat", [a, a], F32, [32, 2], axis=0)
    b.output(b.node("Concat", [y, b.node("Transpose", [z], F32, [2, 32])], F32, [2, 48], axis=1))
    t = b.graph.nodes[3].outputs[0]
    sizes = {a: 128, y: 128, z: 256, t: 256}
    apart = [PlanEntry(0, v, 4096 + 1024 * k, sizes[v]) for k, v in enumerate((a, y, z, t))]
    overlapping = [PlanEntry(0, v, 0, sizes[v]) for v in (a, y, z, t)]
    given = np.arange(32, dtype=F32).reshape(2, 16)
    expected = next(iter(b.session(tmp_path).run({"x": given}).values()))
    for entries, arena in ((apart, 9216), (overlapping, 512)):
        session = Session(b.save(tmp_path / "p.bin", plan=(arena, entries)))
        np.testing.assert_array_equal(next(iter(session.run({"x": given}).values())), expected)
        assert (session.statistics["arena_bytes"] == arena) == (entries is apart)


def test_the_planners_own_plan_can_be_stored(tmp_path: Path) -> None:
    session, builder = chain(tmp_path)
    session.prepare({"x": (1, 8, 30)})
    assert session.statistics["executed_nodes"] == 18
    arena, entries = session.plan
    assert arena == session.statistics["arena_bytes"] and len(entries) >= 17
    stored = Session(builder.save(tmp_path / "stored.bin", plan=session.plan))
    x = np.random.default_rng(1).standard_normal((1, 8, 30)).astype(F32)
    np.testing.assert_array_equal(*(next(iter(s.run({"x": x}).values())) for s in (session, stored)))
    assert stored.plan == session.plan
    with pytest.raises(ArgumentError, match="dimension 2 of an input is wrong"):
        session.prepare({"x": (1, 8, 31)})
    with pytest.raises(ArgumentError, match="shapes are missing"):
        session.prepare({})


def test_profile_counts_runs(tmp_path: Path) -> None:
    session = attention_like(tmp_path)
    x = np.zeros((1, 2, 12), F32)
    session.profile()
    for _ in range(3):
        session.run({"x": x})
    times = [row for row in session.node_times() if row.runs]
    assert {(row.op, row.runs) for row in times} == {("Transpose", 3)}


def test_import_brings_no_framework() -> None:
    code = (
        "import sys, opforge; opforge.Session; print(any(m in sys.modules for m in ('torch', 'onnx', 'onnxruntime')))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_c16_halo_is_zero_on_reused_memory(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", F32, [1, 20, 4, 5])
    filler = b.node("Concat", [x] * 8, F32, axis=0)
    blocked = b.value("blocked", F32, [1, 20, 4, 5], Layout("c16", (1, 2, 3, 4)))
    from opforge.bin.program import Node

    turned = b.node("Transpose", [filler], F32, perm=[3, 2, 1, 0])
    b.graph.nodes.append(Node("opforge", "Reorder", 1, [x], [blocked]))
    wide = b.value("wide", F32, [1, 20, 4, 5], Layout("c16", (2, 2, 2, 2)))
    b.graph.nodes.append(Node("opforge", "Reorder", 1, [blocked], [wide]))
    plain = b.node("Reorder", [wide], F32, [1, 20, 4, 5], domain="opforge", since=1)
    b.output(plain, turned)
    session = b.session(tmp_path)
    given = np.random.default_rng(0).standard_normal((1, 20, 4, 5), F32)
    for _ in range(3):
        np.testing.assert_array_equal(session.run({"x": given})[session.outputs[0].name], given)


def test_limits_for_files_of_strangers(tmp_path: Path) -> None:
    b = Builder()
    trips, go, start = b.input("trips", np.int64, []), b.constant(np.array(True)), b.input("x", F32, ["N"])
    body = Builder(b.program, "body")
    body.input("i", np.int64, [])
    condition, carried = body.input("c", np.bool_, []), body.input("s", F32, ["N"])
    kept = body.node("Identity", [condition], np.bool_, [])
    body.output(kept, body.node("Concat", [carried], F32, ["N"], axis=0))
    b.output(b.node("Loop", [trips, go, start], F32, ["N"], body=GraphRef(body.index)))
    path = b.save(tmp_path / "model.bin")
    feeds = {"trips": np.array(5), "x": np.ones(100_000, F32)}
    assert len(Session(path, loop_limit=5, memory_limit=1 << 22).run(feeds)) == 1
    with pytest.raises(
        UnsupportedError, match=r"a Loop runs more often than the session allows\n.*at most 4 iterations"
    ):
        Session(path, loop_limit=4).run(feeds)
    words = "node 2 Concat .*takes more memory than the session allows\n.*at most 262144 bytes .*\n.*got: 400000 bytes"
    with pytest.raises(OpforgeError, match=words):
        Session(path, memory_limit=1 << 18).run(feeds)
    with pytest.raises(OpforgeError, match=r"takes? more memory than the session allows\n.*at most 500000 bytes"):
        Session(path, memory_limit=500_000).run(feeds)
    for name in ("memory_limit", "loop_limit"):
        with pytest.raises(ArgumentError, match=f"{name}: a limit must be at least 1\n.*\n.*got: 0"):
            Session(path, **{name: 0})
        with pytest.raises(ArgumentError, match=f"{name}: no whole number\n  expected: an int or None\n  got: '1GB'"):
            Session(path, **{name: "1GB"})  # type: ignore[arg-type]
    assert len(Session(path, memory_limit=np.int64(1 << 22)).run(feeds)) == 1  # type: ignore[arg-type]
