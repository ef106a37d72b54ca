"""What watched runs write down: events of nodes, helpers, loops and images, sums, samples."""

from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.bin.session import EventKind, Session
from opforge.errors import ArgumentError
from opforge.profiling._runtime import measure, rows_of
from tests.unit.profiling import models


def watched(session: Session, inputs: dict[str, np.ndarray], runs: int, most: int = 100_000, every: int = 1):
    session.run(inputs)
    session.profile_events(most, every=every)
    for _ in range(runs):
        session.run(inputs)
    session.profile(on=False)
    return session.events()


def test_nodes_follow_each_other_inside_of_their_run(tmp_path: Path) -> None:
    session = Session(models.mlp_bin(tmp_path), threads=1)
    events, lost = watched(session, {"x": np.ones((3, 8), np.float32)}, 4)
    assert lost == 0 and set(events["run"].tolist()) == {0, 1, 2, 3} and len(set(events["thread"].tolist())) == 1
    for run in range(4):
        mine = events[events["run"] == run]
        nodes, (whole,) = mine[mine["kind"] == EventKind.NODE], mine[mine["kind"] == EventKind.RUN]
        assert nodes["node"].tolist() == [0, 1]
        assert (nodes["end"] >= nodes["begin"]).all() and (nodes["begin"][1:] == nodes["end"][:-1]).all()
        assert whole["begin"] <= nodes["begin"][0] and whole["end"] >= nodes["end"][-1] and whole["node"] == -1
    sums = {row.output: (row.runs, row.nanoseconds) for row in session.node_times()}
    for k, name in enumerate(("hidden", "y")):
        mine = events[(events["kind"] == EventKind.NODE) & (events["node"] == k)]
        assert sums[name][0] == 4
        assert sums[name][1] == pytest.approx(int((mine["end"] - mine["begin"]).sum()), rel=0.02, abs=8)


def test_times_are_those_of_the_monotonic_clock(tmp_path: Path) -> None:
    import time

    session = Session(models.mlp_bin(tmp_path), threads=1)
    session.profile_events(10)
    before = time.monotonic_ns()
    session.run({"x": np.ones((3, 8), np.float32)})
    after = time.monotonic_ns()
    events, _ = session.events()
    assert before - 50_000 <= events["begin"].min() and events["end"].max() <= after + 50_000


def test_nobody_watches_before_and_after(tmp_path: Path) -> None:
    session = Session(models.mlp_bin(tmp_path), threads=1)
    x = {"x": np.ones((3, 8), np.float32)}
    session.run(x)
    assert len(session.events()[0]) == 0
    assert len(watched(session, x, 2)[0]) == 6
    session.run(x)
    assert len(session.events()[0]) == 6
    session.profile()  # sums alone
    session.run(x)
    assert len(session.events()[0]) == 0 and {row.runs for row in session.node_times()} == {1}


def test_one_run_in_so_many_is_watched(tmp_path: Path) -> None:
    session = Session(models.mlp_bin(tmp_path), threads=1)
    events, _ = watched(session, {"x": np.ones((3, 8), np.float32)}, 10, every=4)
    assert sorted(set(events["run"].tolist())) == [0, 1, 2]


def test_later_events_are_counted_only(tmp_path: Path) -> None:
    session = Session(models.mlp_bin(tmp_path), threads=1)
    events, lost = watched(session, {"x": np.ones((3, 8), np.float32)}, 5, most=4)
    assert (len(events), lost) == (4, 11)
    assert {row.runs for row in session.node_times()} == {5}


@pytest.mark.parametrize(
    ("most", "every", "words"),
    [(-1, 1, "so many events"), (1 << 40, 1, "so many events"), (1, 0, "one run in so many")],
)
def test_refuses(tmp_path: Path, most: int, every: int, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        Session(models.mlp_bin(tmp_path)).profile_events(most, every=every)


def test_node_tensors_are_those_of_the_last_run(tmp_path: Path) -> None:
    session = Session(models.mlp_bin(tmp_path), threads=1)
    assert session.node_tensors(0) == []
    session.run({"x": np.ones((5, 8), np.float32)})
    shapes = [tensor.shape for tensor in session.node_tensors(0)]
    assert shapes[0] == (5, 8) and shapes[-1] == (5, 16) and session.node_tensors(0)[0].bytes == 160
    with pytest.raises(ArgumentError, match="no such node"):
        session.node_tensors(2)


def test_a_loop_is_timed_without_what_runs_inside(tmp_path: Path) -> None:
    of.compile(models.loop(), tmp_path / "loop.bin")
    session = Session(tmp_path / "loop.bin", threads=1)
    inputs = {"x": np.ones((256, 64), np.float32)}
    measured = measure(session, inputs, runs=12)
    from opforge.bin.format import read

    rows = {row.operator: row for row in rows_of(session, read(tmp_path / "loop.bin").program, measured)}
    runs = len(measured.watched_ns)
    assert rows["Softmax"].calls == 5 * runs and rows["Loop"].calls == runs
    events = measured.events
    calls = events[events["kind"] == EventKind.NODE]
    whole = calls[calls["node"] == rows["Loop"].node]
    inner = calls[calls["node"] == rows["Softmax"].node]
    assert (
        rows["Loop"].samples.sum() < (whole["end"] - whole["begin"]).sum() - (inner["end"] - inner["begin"]).sum() + 1
    )
    assert rows["Softmax"].flops == 5 * 256 * 64 and rows["Softmax"].bytes == 2 * 4 * 256 * 64


def test_images_in_turns_and_lanes(tmp_path: Path) -> None:
    of.compile(models.convolutions(), tmp_path / "net.bin")
    x = {"x": np.ones((8, 3, 64, 64), np.float32)}
    for threads in (1, 2):
        session = Session(tmp_path / "net.bin", threads=threads)
        events, _ = watched(session, x, 3)
        first = events[events["kind"] == EventKind.NODE]
        again = events[events["kind"] == EventKind.AGAIN]
        convolutions = [row for row in session.node_times() if row.op == "Conv"]
        assert {row.runs for row in convolutions} == {3} and len(again) > 0
        assert len(first) == 3 * len(set(first["node"].tolist()))
        images = session.node_tensors(int(again["node"][0]))[0].shape
        assert images is not None and images[0] < 8
        assert (len(again) + len(first[first["node"] == again["node"][0]])) * images[0] >= 3 * 8


@pytest.mark.parametrize("name", ["convolutions", "loop"])
def test_profiles_begin_and_end_while_others_run(tmp_path: Path, name: str) -> None:
    """Results stay the same in every bit, and nothing is read that is being written."""
    import threading
    import time

    of.compile(getattr(models, name)(), tmp_path / "net.bin")
    session = Session(tmp_path / "net.bin", threads=2)
    x = {"x": np.ones((2, 3, 64, 64) if name == "convolutions" else (8, 64), np.float32)}
    expected = session.run(x)["y"].tobytes()
    ends = time.monotonic() + 0.4
    results: set[bytes] = set()

    def work() -> None:
        while time.monotonic() < ends:
            results.add(session.run(x)["y"].tobytes())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    rounds = 0
    while time.monotonic() < ends or rounds < 2:  # a machine that does other things may not come to a second one
        session.profile_events(100, every=1 + rounds % 3)
        session.node_times()
        events, lost = session.events()
        assert len(events) <= 100 and lost >= 0
        session.node_tensors(0)
        session.profile(on=False)
        rounds += 1
    for thread in threads:
        thread.join()
    assert results == {expected}
