"""Streams, graphs and memory on a GPU: kernels run where they are told, wait for nothing, and allocate nothing."""

import time

import numpy as np
import pytest

from opforge.ops import custom_gelu
from tests.device.conftest import REHEARSING
from tests.device.formulas import gate
from tests.device.members import close, draw, family, right

LONG = 2**16 if REHEARSING else 2**28  # bytes whose overwriting keeps the device busy
TIMES = 3 if REHEARSING else 40


def busy(session, stream):
    """Let a stream have work for some milliseconds; returns the memory, which has to live as long."""
    memory = session.allocate(LONG)
    for _ in range(TIMES):
        session.driver.fill(memory, 1, LONG, stream)
    return memory


@pytest.mark.parametrize("repetition", range(3))
def test_a_side_stream_keeps_the_order(session, library, repetition):
    """Input comes late on the same stream: a kernel elsewhere would read what was there before."""
    late, stale = draw(custom_gelu, [(4096,), (4096,)], seed=repetition)
    source, x = session.upload(late), session.upload(stale)
    launcher = session.prepare(custom_gelu, [x], library=library(custom_gelu))
    launcher()
    session.driver.synchronize()
    copy = session.empty(late.shape, late.dtype)
    stream = session.driver.stream()
    busy(session, stream)
    session.driver.copy(x.address, source.address, late.nbytes, stream)
    launcher(stream)
    session.driver.copy(copy.address, launcher.outputs[0].address, late.nbytes, stream)
    session.driver.synchronize(stream)
    close(custom_gelu, [session.download(copy)], right(custom_gelu, [late]))
    session.driver.end_stream(stream)


@pytest.mark.gpu
def test_a_launch_waits_for_nothing(session, library):
    x = session.upload(draw(custom_gelu, [(4096,)])[0])
    launcher = session.prepare(custom_gelu, [x], library=library(custom_gelu))
    stream = session.driver.stream()
    launcher(stream)
    session.driver.synchronize(stream)
    start, end = session.driver.event(), session.driver.event()
    session.driver.record(start, stream)
    busy(session, stream)
    began = time.perf_counter()
    launcher(stream)
    returned = time.perf_counter() - began
    session.driver.record(end, stream)
    assert returned < session.driver.seconds(start, end) / 2
    session.driver.end_stream(stream)


def members():
    return family(custom_gelu)[:2] if REHEARSING else [*family(custom_gelu)[:2], *family(gate)[:2]]


@pytest.mark.parametrize("member", members(), ids=lambda m: m.name)
def test_launches_are_recorded_into_graphs(session, library, member):
    """Sums among them, whose intermediate results lie in memory that was asked for before."""
    shapes = [(64, 128), (128,), (64, 1), (64, 128)] if "Gate" in member.name else [(64, 128)] * 2
    given = draw(member, shapes[: len(member.signature.inputs)], seed=1)
    other = draw(member, shapes[: len(member.signature.inputs)], seed=2)
    sent = [session.upload(a) for a in given]
    launcher = session.prepare(member, sent, library=library(member))
    launcher()
    session.driver.synchronize()
    stream = session.driver.stream()
    session.driver.begin_capture(stream)
    launcher(stream)
    graph = session.driver.end_capture(stream)
    if not REHEARSING:  # the fake driver records nothing
        for array, new in zip(sent, other, strict=True):
            session.driver.upload(array.address, new.__array_interface__["data"][0], new.nbytes)
        for output in launcher.outputs:
            session.driver.fill(output.address, 0xFF, output.size)
        session.driver.synchronize()
        given = other
    session.driver.launch_graph(graph, stream)
    session.driver.synchronize(stream)
    close(member, [session.download(o) for o in launcher.outputs], right(member, given), factor=64)
    session.driver.end_graph(graph)
    session.driver.end_stream(stream)


def taken(session, launcher):
    """How much less memory the device has after a hundred launches."""
    held = session.driver.free_bytes()
    for _ in range(100):
        launcher()
    session.driver.synchronize()
    return held - session.driver.free_bytes()


def test_launches_allocate_nothing(session, library):
    for member in members():
        shapes = [(64, 128), (128,), (64, 1), (64, 128)] if "Gate" in member.name else [(64, 128)] * 2
        sent = [session.upload(a) for a in draw(member, shapes[: len(member.signature.inputs)])]
        launcher = session.prepare(member, sent, library=library(member))
        launcher()  # the first loads the kernel's code, and asks for the scratch memory
        session.driver.synchronize()
        scratch = list(launcher.scratch)
        assert min(taken(session, launcher) for _ in range(5)) <= 0  # other processes may use the device too
        assert launcher.scratch == scratch


def test_two_streams_at_once_do_not_meet(session, library):
    streams = [session.driver.stream() for _ in range(2)]
    data = [draw(custom_gelu, [(50000,)], seed=k)[0] for k in range(2)]
    launchers = [session.prepare(custom_gelu, [session.upload(a)], library=library(custom_gelu)) for a in data]
    for _ in range(20):
        for launcher, stream in zip(launchers, streams, strict=True):
            launcher(stream)
    for launcher, stream, given in zip(launchers, streams, data, strict=True):
        session.driver.synchronize(stream)
        found = session.download(launcher.outputs[0])
        close(custom_gelu, [found], right(custom_gelu, [given]))
        assert np.isfinite(found).all()
        session.driver.end_stream(stream)
