"""Plugins: fields, dtypes, formats, shapes and launches, all from the declaration."""

import numpy as np
import pytest

from opforge.engines.tensorrt import _failures, _fields, _kernels
from opforge.engines.tensorrt._names import plugin_id
from opforge.engines.tensorrt._plugin import plugin_classes
from opforge.engines.tensorrt._register import register
from opforge.errors import ArgumentError, CorruptFileError, DtypeError, MissingOperatorError, UnsupportedError
from opforge.ops import custom_gelu, mish, sparse_matmul
from opforge.schema import Operator, f32
from tests.unit.tensorrt.conftest import emulated, gate
from tests.unit.tensorrt.double import output_shapes, run_plugin


def declared(name, signature, types="", sources=("cuda.cu",)):
    """An operator that is never compiled here."""
    return Operator("test.trt", name, signature, types=types, sources=sources)


shaped = declared(
    "Shaped",
    "(x: T[n, 2*m, *S], *rest: T[k, m]; count: int = 3, names: strings = [], scale: floats = []) "
    "-> (y: T[n+count, m//2, *S], z: i64[7*n-1])",
    types="T: f32 f16",
)
optional = declared(
    "Optional", "(x: T[n], w?: T[n], b?: T[m]; big: int = 0, on: bool = false) -> (y: T[n], c?: T[m])",
    types="T: f32",
)  # fmt: skip


def made(trt, operator, counts=None, **attributes):
    content = _fields.Content(operator.coerce(attributes), counts)
    return plugin_classes(trt)[0](operator, content, {})


def test_a_creator_declares_the_attributes_as_fields(trt):
    (name,) = register(trt, [shaped])
    assert (name.name, name.version, name.namespace) == ("test_trt_Shaped", "1", "test.trt")
    creator = trt.get_plugin_registry().get_creator("test_trt_Shaped", "1", "test.trt")
    kinds = {one.name: one.type.name for one in creator.field_names}
    assert kinds == {
        "count": "INT64", "names": "CHAR", "scale": "FLOAT32", "opforge_inputs": "CHAR", "opforge_schema": "CHAR",
    }  # fmt: skip


@pytest.mark.parametrize(
    "attributes",
    [
        {"count": 2**40, "names": ["a\nb", "", "ü"], "scale": [0.1, float("inf"), -0.0]},
        {"count": -1, "names": [], "scale": []},
    ],
)
def test_fields_of_an_engine_give_the_same_plugin(trt, attributes):
    plugin = made(trt, shaped, (1, 3), **attributes)
    again = _fields.read_fields(trt, shaped, plugin.get_fields_to_serialize())
    assert again == plugin.content
    assert again.text == plugin.content.text


def test_fields_that_fit_no_attribute_are_refused(trt):
    def read(name, data, kind):
        return _fields.read_fields(trt, shaped, [trt.PluginField(name, data, kind)])

    types = trt.PluginFieldType
    with pytest.raises(ArgumentError, match=r"unknown field of a plugin(.|\n)*count, names, scale"):
        read("cuont", np.array([1], np.int32), types.INT32)
    with pytest.raises(ArgumentError, match="more than one number"):
        read("count", np.array([1, 2], np.int32), types.INT32)
    with pytest.raises(ArgumentError, match="fractions"):
        read("count", np.array([1.5], np.float32), types.FLOAT32)
    with pytest.raises(ArgumentError, match=r"holds no literal(.|\n)*of.tensorrt.prepare"):
        read("names", np.frombuffer(b"a\0b\0", np.uint8), types.CHAR)
    with pytest.raises(ArgumentError, match="described wrongly"):
        read("opforge_inputs", np.frombuffer(b"0 1\0", np.uint8), types.CHAR)
    with pytest.raises(CorruptFileError, match="another declaration"):
        read("opforge_schema", np.frombuffer(b"0" * 64 + b"\0", np.uint8), types.CHAR)
    with pytest.raises(DtypeError, match="wrong attribute type"):
        read("scale", np.frombuffer(b'"a"\0', np.uint8), types.CHAR)


def test_output_shapes_are_the_schemas_expressions(trt):
    plugin = made(trt, shaped, (1, 2), count=5)
    shapes = [(4, 6, 2, 9), (8, 3), (8, 3)]
    expected = shaped.bind(shapes, [f32] * 3, {"count": 5}).output_shapes
    assert output_shapes(plugin, shapes) == [tuple(s) for s in expected] == [(9, 1, 2, 9), (27,)]
    assert output_shapes(plugin, shapes, fixed={(0, 0), (0, 1)}) == [(9, 1, 2, 9), (27,)]


@pytest.mark.parametrize("fixed", [set(), {(0, 0)}, {(1, 1)}, {(0, 0), (0, 1), (1, 0), (1, 1)}])
@pytest.mark.parametrize("left", [(3, 1), (1, 4), (1, 0), (1, 1), (3, 4)])
def test_broadcasts_of_sizes_that_are_not_known_are_exact(trt, left, fixed):
    plugin = made(trt, gate)
    for right in [(3, left[1]), (1, left[1]), (1, 1), left]:
        assert output_shapes(plugin, [left, right], fixed) == [np.broadcast_shapes(left, right)]


def test_sizes_that_contradict_are_refused_where_they_are_known(trt):
    fixed = {(k, axis) for k in range(2) for axis in range(2)}
    _failures.forget()
    with pytest.raises(ArgumentError, match="shapes do not broadcast"):
        output_shapes(made(trt, gate), [(3, 4), (2, 4)], fixed)
    assert _failures.kept().what == "shapes do not broadcast"
    assert output_shapes(made(trt, gate), [(3, 4), (2, 4)])  # the launch refuses it


def formats(trt, plugin, types, linear=None):
    """Answers for each place; places behind it hold what nobody may look at."""
    inputs, answers = len(types) - plugin.num_outputs, []
    for pos in range(len(types)):
        descs = []
        for k, one in enumerate(types):
            form = trt.TensorFormat.CHW2 if k > pos or k == linear else trt.TensorFormat.LINEAR
            descs.append(trt.DynamicPluginTensorDesc((), one if k <= pos else "not to be read", form))
        answers.append(plugin.supports_format_combination(pos, descs, inputs))
    return answers


def test_formats_follow_from_the_kernels(kernels):
    """Fault 53: a plugin that accepts halves in, float out is right alone and wrong in the middle of a network."""
    trt, plugin = kernels, made(kernels, gate)
    f32, f16, i32 = trt.DataType.FLOAT, trt.DataType.HALF, trt.DataType.INT32
    assert formats(trt, plugin, [f32, f32, f32]) == [True] * 3
    assert formats(trt, plugin, [f16, f16, f16]) == [True] * 3
    assert formats(trt, plugin, [trt.DataType.BF16] * 3) == [True] * 3
    assert formats(trt, plugin, [f16, f32, f32]) == [True, False, False]
    assert formats(trt, plugin, [f16, f16, f32]) == [True, True, False]
    assert formats(trt, plugin, [i32, f32, f32])[0] is False
    for place in range(3):
        assert formats(trt, plugin, [f32] * 3, linear=place)[place] is False


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shapes", [((5, 7), (5, 7)), ((5, 1, 3), (4, 1)), ((0, 3), (3,)), ((), ())])
def test_a_plugin_computes_what_the_operator_does(kernels, rng, dtype, shapes):
    plugin = made(kernels, gate, slope=0.25, bias=1.0).clone().attach_to_context(None)
    x, w = (np.asarray(rng.normal(size=shape), dtype) for shape in shapes)
    (result,) = run_plugin(plugin, [x, w])
    assert result.dtype == dtype
    exact = gate.reference(x, w, slope=0.25, bias=1.0)
    np.testing.assert_allclose(result, exact, rtol=2e-3 if dtype == "float16" else 1e-6, atol=2e-3)
    (other,) = run_plugin(plugin, [np.ones((2, 2), dtype), np.zeros((2, 2), dtype)])
    np.testing.assert_array_equal(other, np.ones((2, 2), dtype))


def test_a_launch_that_does_not_fit_keeps_its_words(kernels):
    _failures.forget()
    plugin = made(kernels, gate)
    with pytest.raises(ArgumentError, match="shapes do not broadcast"):
        run_plugin(plugin, [np.ones((3, 4), np.float32), np.ones((2, 4), np.float32)])
    assert "test.trt::Gate" in str(_failures.kept())


def test_absent_inputs_have_no_tensor(trt):
    assert made(trt, optional, (1, 0, 1)).num_outputs == 2
    plugin = made(trt, optional, (1, 1, 0))
    assert plugin.num_outputs == 1
    assert output_shapes(plugin, [(4,), (4,)]) == [(4,)]
    assert output_shapes(made(trt, optional, (1, 0, 1)), [(4,), (9,)]) == [(4,), (9,)]
    with pytest.raises(ArgumentError, match="wrong number of inputs"):
        output_shapes(plugin, [(4,)])


def test_workspace_of_formulas_is_none_and_can_be_given(trt):
    sizes = [([8, 4], f32), ([8], f32)]
    assert _kernels.workspace(gate, sizes, {}) == 0
    assert _kernels.workspace(gate.gradient_operator, sizes, {}) == 4 * 40 + (1 << 20)
    assert _kernels.workspace(shaped, sizes, {shaped.key: 99}) == 99


def test_scratch_comes_from_the_workspace_and_no_further(kernels):
    from opforge.engines.tensorrt._call import DeviceCall

    call = DeviceCall(gate, emulated().operator(gate.key), made(kernels, gate).content, [(2,), (2,)], [f32] * 2, 0)
    call._workspace = (4096 + 8, 1024)
    assert call._scratch(0, 100, 16) == 4096 + 256
    assert call._scratch(0, 100, 16) == 4096 + 512
    assert call._scratch(0, 900, 16) is None


def test_dtypes_that_tensorrt_has_not_are_named(kernels):
    plugin = made(kernels, gate)
    with pytest.raises(DtypeError, match="wrong dtype"):
        plugin.get_output_data_types([kernels.DataType.FP8, kernels.DataType.FP8])
    wide = declared("Wide", "(x: f32[n]) -> (y: f64[n])")
    with pytest.raises(UnsupportedError, match="TensorRT has no such dtype"):
        made(kernels, wide).get_output_data_types([kernels.DataType.FLOAT])


def test_registering_again_changes_nothing_and_another_plugin_is_refused(trt):
    assert register(trt, [mish]) == register(trt, [mish]) == [plugin_id(mish)]
    other = plugin_classes(trt)[1](gate, {})
    trt.get_plugin_registry().register_creator(other, other.plugin_namespace)
    with pytest.raises(ArgumentError, match=r"another plugin of this name(.|\n)*test_trt_Gate version 1"):
        register(trt, [gate])


def test_sizes_that_depend_on_data_are_refused_at_registration(trt):
    found = declared("Found", "(x: f32[n]) -> (y: i64[_])")
    with pytest.raises(UnsupportedError, match="size depends on data"):
        register(trt, [found])


def test_a_library_without_cuda_kernels_is_refused(trt):
    from opforge.build import library_for

    with pytest.raises(MissingOperatorError, match=r"no CUDA kernels(.|\n)*--device cuda"):
        register(trt, [custom_gelu], library=library_for([custom_gelu]))


def test_an_operator_without_cuda_kernels_says_so(trt):
    bare = declared("Bare", "(x: f32[n]) -> (y: f32[n])", sources=("cpu.cc",))
    with pytest.raises(UnsupportedError, match=r"no CUDA kernel(.|\n)*cpu.cc"):
        _kernels.cuda_row(bare)
    assert sparse_matmul.is_formula is False


def test_an_authors_kernel_runs_as_a_plugin_with_its_workspace(trt, rng):
    from opforge.build import load_library
    from tests.unit.cuda.test_sparse import MEMBERS, built

    assert sparse_matmul in MEMBERS
    _kernels.provide(load_library(built().path))
    plugin = made(trt, sparse_matmul)
    indptr, indices = np.array([0, 2, 2, 5], np.int64), np.array([0, 3, 1, 2, 3], np.int64)
    values, dense = rng.normal(size=5).astype(np.float32), rng.normal(size=(4, 6)).astype(np.float32)
    (found,) = run_plugin(plugin, [values, indices, indptr, dense])
    np.testing.assert_allclose(found, sparse_matmul.reference(values, indices, indptr, dense), rtol=1e-5, atol=1e-6)
    f32, i64 = trt.DataType.FLOAT, trt.DataType.INT64
    assert formats(trt, plugin, [f32, i64, i64, f32, f32]) == [True] * 5
    assert formats(trt, plugin, [f32, i64, trt.DataType.INT32, f32, f32])[2] is False
