"""Kernels that NVRTC compiled, launched through the driver on a GPU: values, sums, streams, graphs."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from opforge.build import load_library
from opforge.schema.dtypes import DType
from tests.device.formulas import gate
from tests.device.members import close, draw, right

GRADIENT = gate.gradient_operator


@pytest.fixture
def launched(tmp_path):
    """A copy of the library that make device-build made, of which nothing has been loaded yet."""
    folder = Path(os.environ.get("OPFORGE_LIBRARY_PATH", "").split(os.pathsep)[0]) / "launched"
    built = sorted(folder.glob("*.so")) if folder.is_dir() else []
    if not built:
        pytest.skip("no library of NVRTC's was built (make device-build)")
    return load_library(shutil.copy(built[0], tmp_path))


def dtypes(library):
    return [DType.from_dlpack(*kernel.dtypes[0]).name for kernel in library.operator(gate.key).kernels]


SHAPES = [
    [(70_001,)] * 3,  # vectors, and what is left over
    [(4, 5, 6), (6,), ()],
    [(300, 200), (200,), (300, 1)],
    [(0, 3), (3,), (1,)],
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_values_and_sums(session, launched, shapes):
    whole = np.broadcast_shapes(*shapes)
    for dtype in dtypes(launched):
        given = draw(gate, shapes, dtype)
        close(gate, session.call(gate, given, library=launched), right(gate, given))
        given = draw(GRADIENT, [whole, *shapes], dtype)
        found = session.call(GRADIENT, given, library=launched)
        close(GRADIENT, found, right(GRADIENT, given), factor=64)
        again = session.call(GRADIENT, given, library=launched)
        for one, other in zip(found, again, strict=True):
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("cut", [np.s_[::2, 1:], np.s_[1:, 3:], np.s_[:1, :1]], ids=str)
def test_strides_and_offsets(session, launched, cut):
    given = [array[cut] for array in draw(gate, [(20, 31)] * 3)]
    close(gate, session.call(gate, given, library=launched), right(gate, given))
    given = [given[0].T, given[1].T, given[2].T]
    close(gate, session.call(gate, given, library=launched), right(gate, given))


def test_a_side_stream_keeps_the_order(session, launched):
    late, *others = draw(gate, [(4096,)] * 3)
    source, x = session.upload(late), session.upload(np.zeros_like(late))
    launcher = session.prepare(gate, [x, *map(session.upload, others)], library=launched)
    stream = session.driver.stream()
    session.driver.copy(x.address, source.address, late.nbytes, stream)
    launcher(stream)
    session.driver.synchronize(stream)
    close(gate, [session.download(one) for one in launcher.outputs], right(gate, [late, *others]))
    session.driver.end_stream(stream)


def test_a_first_call_in_a_captured_graph(session, launched):
    given = draw(gate, [(1000,)] * 3)
    launcher = session.prepare(gate, list(map(session.upload, given)), library=launched)
    stream = session.driver.stream()
    session.driver.begin_capture(stream)
    launcher(stream)
    graph = session.driver.end_capture(stream)
    session.driver.launch_graph(graph, stream)
    session.driver.synchronize(stream)
    close(gate, [session.download(one) for one in launcher.outputs], right(gate, given))
    session.driver.end_graph(graph)
    session.driver.end_stream(stream)
