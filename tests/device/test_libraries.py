"""Variants that call cuSPARSE and cuBLAS on a GPU: values, equal bits, graphs, memory, what is no CSR matrix."""

import numpy as np
import pytest

from examples.tiled_matmul.op import tiled_matmul
from opforge.build.tuning import CLASSES, Choice, set_choice
from opforge.errors import OpforgeError, UnsupportedError
from opforge.ops import sparse_matmul, sparse_matmul_grad_dense, sparse_matmul_grad_values
from opforge.verify.cases import arrays, cases_of
from tests.device.conftest import REHEARSING
from tests.device.members import choices, close, name_of, right
from tests.device.test_streams import taken

PRODUCTS = {sparse_matmul: (3, 4), sparse_matmul_grad_dense: (3, 4), sparse_matmul_grad_values: (1,)}
VARIANTS = [*((o, v) for o, known in PRODUCTS.items() for v in known), *([] if REHEARSING else [(tiled_matmul, 1)])]
FIXED = [(o, v) for o, v in VARIANTS if v != 4]
CALLS = [(o, v, types) for o, v in VARIANTS for types in choices(o)]


@pytest.fixture
def asked(session, library):
    """Let an operator's kernels take a variant; its library may be missing, which skips the test with the words."""
    told = []

    def ask(operator, variant):
        loaded = library(operator)
        told.append(loaded)
        for kernel in loaded.operator(operator.key).kernels:
            for klass in range(CLASSES):
                set_choice(kernel, klass, Choice(variant=variant))
        try:
            case = next(c for c in cases_of(operator) if c.name in ("small", "one"))
            session.call(operator, arrays(operator, case, choices(operator)[-1], seed=0), library=loaded)
        except UnsupportedError as error:
            if "is not here" in str(error):
                pytest.skip(str(error).splitlines()[0])
            raise
        return loaded

    yield ask
    for loaded in told:
        for row in loaded.operators.values():
            for kernel in row.kernels:
                for klass in range(CLASSES):
                    set_choice(kernel, klass, Choice())


M, K, LONG = (60, 40, 300) if REHEARSING else (300, 200, 1500)


def inputs(operator, types, m=M, k=K, n=64, seed=0):
    """A matrix with rows of very different lengths, empty ones too; columns in any order, equal ones too."""
    rng = np.random.default_rng(seed)
    kind, index = types["T"].numpy, types.get("I", types["T"]).numpy

    def normal(*shape):
        return rng.standard_normal(shape).astype(kind)

    if operator is tiled_matmul:
        return [normal(m, k), normal(k, n)]
    counts = rng.integers(0, 9, m)
    counts[[3, m // 2]] = 0, LONG
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(index)
    indices = rng.integers(0, k, indptr[-1]).astype(index)
    if operator is sparse_matmul_grad_values:
        return [indices, indptr, normal(m, n), normal(k, n)]
    if operator is sparse_matmul:
        return [normal(indptr[-1]), indices, indptr, normal(k, n)]
    return [normal(indptr[-1]), indices, indptr, normal(m, n), normal(k, 1)]


def is_lacking(error):
    """Whether the library's words say that this version, or this GPU, has not the dtype."""
    return "NOT_SUPPORTED" in str(error) or "ARCH_MISMATCH" in str(error)


@pytest.mark.parametrize(
    ("operator", "variant", "types"), CALLS, ids=lambda v: name_of(v) if isinstance(v, dict) else getattr(v, "name", v)
)
def test_values_in_every_dtype(session, asked, operator, variant, types):
    loaded = asked(operator, variant)
    given = [arrays(operator, case, types, seed=0) for case in cases_of(operator)]
    widths = (1,) if REHEARSING else (1, 3, 64)
    for one in [*given, *(inputs(operator, types, n=n) for n in widths)]:
        try:
            found = session.call(operator, one, library=loaded)
        except UnsupportedError as error:
            assert is_lacking(error)
            pytest.skip(str(error).splitlines()[0])
        close(operator, found, right(operator, one), factor=4)


@pytest.mark.parametrize(("operator", "variant"), FIXED, ids=lambda v: getattr(v, "name", v))
def test_equal_bits_in_every_run(session, asked, operator, variant):
    """For the variants that `opforge tune` may keep."""
    loaded = asked(operator, variant)
    for types in choices(operator):
        for n in (1,) if REHEARSING else (1, 64):
            given = inputs(operator, types, n=n, seed=2)
            try:
                runs = [session.call(operator, given, library=loaded)[0].tobytes() for _ in range(6)]
            except UnsupportedError as error:
                assert is_lacking(error)
                continue
            assert all(run == runs[0] for run in runs), name_of(types)


@pytest.mark.parametrize(("operator", "variant"), VARIANTS, ids=lambda v: getattr(v, "name", v))
def test_graphs_and_memory(session, asked, operator, variant):
    loaded = asked(operator, variant)
    types = {v: next((d for d in k if d.name in ("f32", "i64")), k[0]) for v, k in operator.types.items()}
    given = inputs(operator, types)
    launcher = session.prepare(operator, [session.upload(a) for a in given], library=loaded)
    launcher()
    session.driver.synchronize()
    scratch = list(launcher.scratch)
    assert min(taken(session, launcher) for _ in range(5)) <= 0
    assert launcher.scratch == scratch
    stream = session.driver.stream()
    session.driver.begin_capture(stream)
    launcher(stream)
    graph = session.driver.end_capture(stream)
    if not REHEARSING:  # the fake driver records nothing
        for output in launcher.outputs:
            session.driver.fill(output.address, 0xFF, output.size)
        session.driver.synchronize()
    session.driver.launch_graph(graph, stream)
    session.driver.synchronize(stream)
    close(operator, [session.download(o) for o in launcher.outputs], right(operator, given), factor=4)
    session.driver.end_graph(graph)
    session.driver.end_stream(stream)


@pytest.mark.parametrize("operator", PRODUCTS, ids=lambda o: o.name)
def test_what_is_no_csr_matrix_is_not_followed(session, asked, operator):
    for variant in PRODUCTS[operator]:
        loaded = asked(operator, variant)
        given = inputs(operator, {v: next(d for d in k if d.name in ("f32", "i64")) for v, k in operator.types.items()})
        given[0 if operator is sparse_matmul_grad_values else 1][5] = 10**15
        try:
            (found,) = session.call(operator, given, library=loaded)
        except OpforgeError as error:  # the emulator, and OPFORGE_CUDA_CHECK=1
            assert "expected 0 <= index <" in str(error)
        else:
            assert np.isnan(found).all()
        session.driver.synchronize()
