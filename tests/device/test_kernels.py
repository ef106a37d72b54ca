"""Kernels on a GPU, called without a framework: values, derivatives, dtypes, layouts, sizes, errors."""

import os
from pathlib import Path

import numpy as np
import pytest

from opforge.build import abi, load_library, tuning
from opforge.build.tuning import Choice
from opforge.cuda.device import DeviceArray
from opforge.errors import ArgumentError, OpforgeError, UnsupportedError
from opforge.ops import custom_gelu
from opforge.verify.cases import arrays, cases_of
from tests.device.conftest import REHEARSING
from tests.device.formulas import gate
from tests.device.members import choices, close, declared, draw, family, formulas, name_of, right

CALLS = [(o, types) for o in declared() for types in choices(o)]
MEMBERS = [(m, k) for o in formulas() for k, m in enumerate(family(o))]


@pytest.mark.parametrize(("operator", "types"), CALLS, ids=lambda v: name_of(v) if isinstance(v, dict) else v.name)
def test_values_of_every_case_in_every_dtype(session, library, operator, types):
    for case in cases_of(operator):
        given = arrays(operator, case, types, seed=0)
        found = session.call(operator, given, case.attributes, library=library(operator))
        close(operator, found, right(operator, given, case.attributes))


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize(("member", "order"), MEMBERS, ids=lambda v: str(v) if isinstance(v, int) else v.name)
def test_derivatives_of_formulas(session, library, member, order, dtype):
    if order > 1 and dtype in ("f16", "bf16"):
        dtype = "f32"  # second derivatives of rounded inputs cancel; what they round is tested in the first ones
    given = draw(member, [(7, 33)] * len(member.signature.inputs), dtype)
    found = session.call(member, given, library=library(member))
    close(member, found, right(member, given), factor=8)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 7, 8, 9, 1000, 70001])
def test_vectors_and_what_is_left_over(session, library, size):
    for dtype in ("f32", "f16"):
        given = draw(custom_gelu, [(size,)], dtype)
        close(custom_gelu, session.call(custom_gelu, given, library=library(custom_gelu)), right(custom_gelu, given))


LAYOUTS = {
    "transposed": lambda a: a.T,
    "sliced": lambda a: a[::2],
    "reversed": lambda a: a[:, ::-1],
    "offset": lambda a: a[1:, 3:],
    "expanded": lambda a: np.broadcast_to(a[:1], a.shape),
    "ranks": lambda a: a[None, :, None],
    "0-d": lambda a: a[0, 0],
    "empty": lambda a: a[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(session, library, layout):
    whole = draw(custom_gelu, [(12, 20)])[0]
    given = np.asarray(LAYOUTS[layout](whole))
    close(custom_gelu, session.call(custom_gelu, [given], library=library(custom_gelu)), right(custom_gelu, [given]))
    gradient = custom_gelu.gradient_operator
    given = [given, np.broadcast_to(np.float32(0.5), given.shape)]  # as `sum` gives it: no strides at all
    close(gradient, session.call(gradient, given, library=library(gradient)), right(gradient, given), factor=4)


BROADCASTS = [
    ((4, 5, 6), (6,), ()),
    ((4, 1, 6), (5, 1), (1, 1, 1)),
    ((0, 3), (3,), (1,)),
    ((200, 300), (300,), (200, 1)),
    ((2,), (70000, 2), (2,)),
]


@pytest.mark.skipif(REHEARSING, reason="no GPU: a rehearsal builds fewer operators")
@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
def test_broadcasting_and_sums_of_gradients(session, library, shapes):
    for member in family(gate)[:2]:
        whole = np.broadcast_shapes(*shapes)
        given = draw(member, [*shapes, whole][: len(member.signature.inputs)])
        found = session.call(member, given, library=library(member))
        close(member, found, right(member, given), factor=64)


@pytest.mark.skipif(REHEARSING, reason="no GPU: a rehearsal builds fewer operators")
def test_sums_have_equal_bits_in_every_run(session, library):
    member = gate.gradient_operator
    given = draw(member, [(200, 3000), (3000,), (200, 1), (200, 3000)])
    runs = [[part.tobytes() for part in session.call(member, given, library=library(member))] for _ in range(20)]
    assert all(run == runs[0] for run in runs)


def test_every_operator_gives_equal_bits_in_every_run(session, library):
    for operator in declared():
        case = max(cases_of(operator), key=lambda c: len(str(c.inputs)))
        given = arrays(operator, case, choices(operator)[-1], seed=3)
        calls = [session.call(operator, given, case.attributes, library=library(operator)) for _ in range(5)]
        runs = [[part.tobytes() for part in found] for found in calls]
        assert all(run == runs[0] for run in runs), operator.name


def test_special_values(session, library):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 100.0, -100.0], np.float32)
    (found,) = session.call(custom_gelu, [x], library=library(custom_gelu))
    expected = custom_gelu.reference(x.astype(np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-37)


def test_what_a_launch_is_refused_for_is_raised_and_forgotten(session, library):
    loaded = library(custom_gelu)
    (x,) = draw(custom_gelu, [(5000,)])
    kernel = loaded.operator(custom_gelu.key).kernel_for(((2, 32),), abi.DEVICE_CUDA)
    klass = tuning.size_class(2 * x.size)
    tuning.set_choice(kernel, klass, Choice(threads=2048))  # more than any block has
    try:
        with pytest.raises(OpforgeError, match=r"(?i)invalid ?configuration|block|2048"):
            session.call(custom_gelu, [x], library=loaded)
    finally:
        tuning.set_choice(kernel, klass, Choice())
    close(custom_gelu, session.call(custom_gelu, [x], library=loaded), right(custom_gelu, [x]))
    session.driver.synchronize()  # and no error is left behind


def test_tensors_of_another_device_are_refused(session, library):
    (x,) = draw(custom_gelu, [(100,)])
    launcher = session.prepare(custom_gelu, [session.upload(x)], library=library(custom_gelu))
    launcher._inputs.tensors[0].device = abi.Device(abi.DEVICE_CUDA, 1)
    with pytest.raises(ArgumentError, match="lies on another device"):
        launcher()
    launcher._inputs.tensors[0].device = abi.Device(abi.DEVICE_CPU, 0)
    with pytest.raises(ArgumentError, match="lies on another device"):
        launcher()


@pytest.mark.gpu
def test_a_library_without_code_for_the_device_says_so(session):
    folder = Path(os.environ.get("OPFORGE_LIBRARY_PATH", "").split(os.pathsep)[0]) / "other_architecture"
    built = sorted(folder.glob("*.so")) if folder.is_dir() else []
    if not built:
        pytest.skip("no library for another architecture was built (make device-build)")
    if session.device.architecture >= 120:
        pytest.skip("the library for another architecture, sm_120, serves this GPU too")
    (x,) = draw(custom_gelu, [(100,)])
    with pytest.raises(UnsupportedError, match="sm_120"):
        session.call(custom_gelu, [x], library=load_library(built[0]))


def needs_memory(session, size):
    free = session.driver.free_bytes()
    if free < size:
        pytest.skip(f"no GPU with {size / 2**30:.0f} GiB of free memory: {free / 2**30:.1f}")


@pytest.mark.gpu
def test_more_elements_than_32_bits_count(session, library):
    count = 2**31 + 24
    needs_memory(session, 5 * count)
    x = session.empty((count,), np.float16)
    session.driver.fill(x.address, 0x3C, 2 * count)  # halves of 0x3C3C
    sample = np.frombuffer(b"\x3c\x3c", np.float16)[:1]
    launcher = session.prepare(custom_gelu, [x], library=library(custom_gelu))
    launcher()
    (y,) = launcher.outputs
    expected = right(custom_gelu, [sample])[0]
    for start in (0, 2**30, 2**31 - 512, count - 1024):
        part = DeviceArray(y.address + 2 * start, (1024,), (1,), y.dtype, y.memory, 2048)
        close(custom_gelu, [session.download(part)], [np.broadcast_to(expected, 1024)])


@pytest.mark.gpu
def test_strides_beyond_32_bits(session, library):
    far = 2**31 + 16
    needs_memory(session, 2 * far + 2**20)
    memory = session.allocate(2 * far + 8192)
    rows = draw(custom_gelu, [(1000,), (1000,)], "f16")
    for k, row in enumerate(rows):
        session.driver.upload(memory + 2 * far * k, row.__array_interface__["data"][0], row.nbytes)
    x = DeviceArray(memory, (2, 1000), (far, 1), np.dtype(np.float16), memory, 2 * far + 8192)
    launcher = session.prepare(custom_gelu, [x], library=library(custom_gelu))
    launcher()
    close(custom_gelu, [session.download(launcher.outputs[0])], right(custom_gelu, [np.stack(rows)]))
