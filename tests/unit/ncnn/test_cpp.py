"""The C++ layers for ncnn's C API, compiled from the one file that is written, against a double of that API."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.build import library_for
from opforge.engines.ncnn._custom import CustomLayer, layer_kind
from opforge.schema import DType
from tests.unit.ncnn.conftest import draw

pytestmark = pytest.mark.compiler
HERE = Path(__file__).parent
F32, I32 = DType.parse("f32"), DType.parse("i32")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The layers and the double, linked."""
    folder = tmp_path_factory.mktemp("layers")
    source, header = of.ncnn.write_layers(folder)
    assert {source.name, header.name} == {"opforge_ncnn.cpp", "opforge_ncnn.h"}
    text = source.read_text()
    assert '#include "opforge/' not in text and '#include "common/' not in text and "#pragma once" not in text
    target = folder / "program"
    flags = ["-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-fopenmp", f"-I{folder}"]
    subprocess.run(["c++", *flags, str(source), str(HERE / "double.cpp"), "-o", str(target), "-ldl"], check=True)
    return target


def words_of(params):
    """Parameters as the double reads them: id, type, count, words."""
    made = [len(params)]
    for number, value in params.items():
        values = value if isinstance(value, tuple) else (value,)
        floats = any(isinstance(v, float) for v in values)
        kind = (4 if not values else 6 if floats else 5) if isinstance(value, tuple) else 3 if floats else 2
        bits = np.asarray(values, np.float32).view(np.int32) if floats else np.asarray(values, np.int64)
        made += [number, kind, len(values), *bits.tolist()]
    return made


def tensor_words(array, pack=1):
    shape = array.shape
    c, d, h, w = {1: (1, 1, 1), 2: (1, 1), 3: (shape[0], 1), 4: ()}[len(shape)] + (
        shape[1:] if len(shape) == 3 else shape
    )
    return [len(shape), w, h, d, c, pack, *array.view(np.int32).reshape(-1).tolist()]


def run(program, library, kind, params, tensors, outputs=1):
    words = [library, kind, *words_of(params), len(tensors), *(w for t in tensors for w in t), outputs]
    done = subprocess.run([program], input=" ".join(map(str, words)), capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    found = []
    for line in lines:
        if line.startswith("tensor "):
            dims, w, h, d, c, *data = map(int, line.split()[1:])
            shape = {0: (0,), 1: (w,), 2: (h, w), 3: (c, h, w), 4: (c, d, h, w)}[dims]
            found.append(np.array(data, np.int32).view(np.float32).reshape(shape))
    return done.stdout, found


def layer(operator, dtypes, forms, results=(0,), counts=None, **given):
    counts = counts or (1,) * len(dtypes)
    return CustomLayer(operator, operator.coerce(given), counts, tuple(dtypes), tuple(forms), results)


def library_of(operator):
    return str(library_for([operator]).path)


@pytest.mark.parametrize("shape", [(3, 5, 7), (4, 3, 3), (5, 2, 2), (3, 5), (7,), (2, 3, 5, 7), (1, 3, 5)])
@pytest.mark.parametrize("form", [0, 1])
def test_channels_that_do_not_follow_each_other_are_read_and_written(program, shape, form):
    """ncnn aligns channels to 16 bytes; between them lies what nobody wrote."""
    gelu = of.load("opforge.ops:CustomGELU")[0]
    x = draw(shape, low=-2, high=2)
    said, (y,) = run(
        program,
        library_of(gelu),
        layer_kind(gelu.key),
        layer(gelu, [F32], [form], (form,)).params(),
        [tensor_words(x)],
    )
    np.testing.assert_allclose(y, gelu.reference(x.astype(np.float64)), rtol=2e-6, atol=1e-7)
    assert y.shape == x.shape and "code 0" in said and "left 0" in said
    for flag in ("inplace", "packing", "vulkan", "bf16_storage", "fp16_storage"):
        assert f"support_{flag} 0" in said
    assert "one_blob_only 1" in said and "asked for threads 1" in said


def test_several_inputs_of_different_ranks_and_an_element(program):
    mod = of.load("opforge.ops:ModSigmoid")[0]
    x, t = draw((5, 3, 7)), np.float32([0.25])
    params = layer(mod, [F32, F32], [1, 2], (1,)).params()
    said, (y,) = run(program, library_of(mod), layer_kind(mod.key), params, [tensor_words(x), tensor_words(t)])
    np.testing.assert_allclose(y, mod.reference(x.astype(np.float64), np.float64(0.25)), rtol=2e-6, atol=1e-7)
    assert "one_blob_only 0" in said and "left 0" in said


def test_attributes_and_integers(program):
    clip = of.load("opforge.ops:ClipSigmoid")[0]
    x = draw((3, 5), low=-4, high=4)
    params = layer(clip, [F32], [0], lo=0.25, hi=0.5).params()
    _, (y,) = run(program, library_of(clip), layer_kind(clip.key), params, [tensor_words(x)])
    np.testing.assert_allclose(y, clip.reference(x.astype(np.float64), lo=0.25, hi=0.5), rtol=2e-6)
    sparse = of.load("opforge.ops:SparseMatMul")[0]
    values, indices, indptr = draw((4,)), np.int32([0, 2, 1, 2]), np.int32([0, 2, 2, 4])
    dense = draw((3, 5), seed=1)
    params = layer(sparse, [F32, I32, I32, F32], [0, 0, 0, 0]).params()
    tensors = [tensor_words(a) for a in (values, indices, indptr, dense)]
    _, (y,) = run(program, library_of(sparse), layer_kind(sparse.key), params, tensors)
    np.testing.assert_allclose(y, sparse.reference(values, indices, indptr, dense), rtol=1e-5, atol=1e-6)


def test_failures_leave_tensors_that_ncnn_can_read(program, tmp_path):
    mod = of.load("opforge.ops:ModSigmoid")[0]
    kind, library = layer_kind(mod.key), library_of(mod)
    params = layer(mod, [F32, F32], [0, 0]).params()
    x, t = draw((3, 5)), draw((4,))
    said, found = run(program, library, kind, params, [tensor_words(x), tensor_words(t)])
    assert "code -100" in said and "shapes do not broadcast" in said and "left 0" in said
    assert [a.size for a in found] == [0]
    said, _ = run(program, library, kind, params, [[2, 1, 1, 1, 1, 4, 0, 0, 0, 0], tensor_words(t)])
    assert "a tensor that is not plain" in said and "packed by 4" in said
    said, _ = run(program, library, kind, {**params, 20: (1, 2)}, [])
    assert "the layer's inputs are described wrongly" in said and "convert the model again" in said
    said, _ = run(program, library, kind, {k: v for k, v in params.items() if k != 21}, [])
    assert "a parameter is missing" in said and "id 21" in said
    said, _ = run(program, str(tmp_path / "none.so"), kind, params, [])
    assert "registered -1" in said and "the kernel library does not load" in said
    said, _ = run(program, library, "com_example_ModSigmoid_9", params, [])
    assert "no such kind" in said


@pytest.mark.parametrize("shape", [(1000,), (3, 5), (3, 5, 7)])
def test_a_kernel_has_the_addresses_that_it_asks_for(program, tmp_path, shape):
    """Paged wants multiples of 4096 and says where it does not get them; ncnn's blobs lie at multiples of 16."""
    library = tmp_path / "libhandwritten.so"
    source = HERE.parents[1] / "data" / "handwritten_library.c"
    include = HERE.parents[2] / "include"
    flags = ["-std=c11", "-O1", "-fPIC", "-shared", f"-I{include}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library), "-lm"], check=True)
    x = draw(shape)
    params = {20: (1,), 21: (F32.code * 256 + F32.bits,), 22: (0,), 23: (0,), 24: 1}
    said, (y,) = run(program, str(library), layer_kind("test.hand::Paged:1"), params, [tensor_words(x)])
    np.testing.assert_array_equal(y, 2 * x)
    assert "code 0" in said and "left 0" in said
