"""The text that emitters write."""

import math
import re
import subprocess

import numpy as np
import pytest

import opforge as of
from opforge import ops
from opforge.build import abi, load_library
from opforge.build.flags import compile_flags
from opforge.build.toolchain import find_compiler
from opforge.codegen import declaration, formula_unit, kernel_units, table_unit
from opforge.codegen.cpp import literal
from opforge.codegen.units import cpp_string, dtype_choices, kernel_symbol
from opforge.cuda import emulate_operators
from opforge.errors import SchemaError
from opforge.frameworks import numpy_host
from opforge.schema import Operator


def test_body_holds_the_programs_instructions_in_order():
    operator = ops.custom_gelu
    unit = formula_unit(operator)
    emitted = re.findall(r"vm::(\w+)(?:<[^>]*>)?\(", unit.text.split("static void body")[1].split("\n  }\n")[0])
    program = operator.formula.program()
    assert [name for name in emitted if name != "splat"] == [i.op for i in program.instructions]
    assert emitted.count("splat") == len(program.constants)


def test_sums_casts_and_other_types():
    @of.formula("test.codegen::Typed", differentiable=False)
    def typed(x, y, *, flag: bool = True, count: int = 2):
        """Use comparisons, a selection and casts."""
        return of.where(of.logical_and(x > y, flag), of.cast(x, "i32"), of.cast(y * count, "i32"))

    text = formula_unit(typed).text
    assert "using Inputs = vm::Types<vm::T, vm::T>;" in text
    assert "using Attributes = vm::Types<vm::T, vm::T>;" in text
    assert "using Outputs = vm::Types<int32_t>;" in text
    assert "vm::Rebind<V, int32_t>& o0" in text
    assert "vm::cast<int32_t>(" in text
    grad = ops.mod_sigmoid.derived[0]
    assert "static constexpr int kSumTo[] = {1, 2};" in formula_unit(grad).text


@pytest.mark.parametrize("value", [0.0, -0.0, 0.1, 1e-320, 1.7976931348623157e308, math.inf, -math.inf, math.nan])
def test_literals_read_back_to_the_same_bits(value):
    text = literal(value)
    known = {"__builtin_inf()": math.inf, "-__builtin_inf()": -math.inf, '__builtin_nan("")': math.nan}
    back = known[text] if text in known else float(text)
    assert math.copysign(1, back) == math.copysign(1, value)
    assert back == value or (math.isnan(back) and math.isnan(value))


def test_strings_are_escaped():
    assert cpp_string('a"b\\c\n') == '"a\\042b\\134c\\012"'
    assert cpp_string("??=é1") == '"\\077\\077=\\303\\2511"'


@pytest.mark.compiler
def test_names_that_c_plus_plus_has_a_meaning_for(tmp_path):
    """Macros, keywords, and what the units themselves use."""

    def declared(name):
        return of.formula(name, dtypes=["f32"], differentiable=False)(lambda x: of.exp(x))

    made = [declared(name) for name in ("std::NULL", "int::EOF", "new::V", "vm::B", "linux::Body")]
    assert "struct NULL_ {" in formula_unit(made[0]).text and "struct Body {" in formula_unit(made[-1]).text
    compiler = find_compiler()
    units = {operator.name: formula_unit(operator).text for operator in made}
    for name, text in units.items():
        (tmp_path / f"{name}.cc").write_text(text)
    command = [*compiler.command, "-fsyntax-only", *compile_flags(compiler, "strict")]
    done = subprocess.run([*command, *(tmp_path / f"{name}.cc" for name in units)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library = load_library(emulate_operators(made[:3]).path)
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    for operator in made[:3]:
        got = numpy_host.call(operator, [x], {}, library=library, device=abi.DEVICE_CUDA)
        np.testing.assert_allclose(got, np.exp(x), rtol=1e-6)


def test_units_do_not_depend_on_the_folder_or_the_asking_line():
    def text_of_gradient():
        return formula_unit(ops.mish.derived[0]).text

    assert "/" not in formula_unit(ops.mish).text.splitlines()[0].removeprefix("//")
    assert text_of_gradient() == text_of_gradient()
    assert "test_cpp.py" not in text_of_gradient()


def test_declaration_of_every_parameter_kind():
    operator = Operator(
        "test.codegen",
        "Kinds",
        "(x: T[m, n], bias?: T[n], flags: bool[*S], *more: T[m]; a: int, b: float = 1.0, "
        'c: string = "x", d: bool = true, '
        "e: ints = [1], f: floats = [], g: strings = [], h: bools = []) -> (y: T[_, n], z: i64[*S])",
        types="T: f32 bf16",
    )
    assert declaration(operator).replace(", ", ",\n") == (
        "template <class T>\n"
        "opforge::Status kinds(opforge::Context& context,\n"
        "opforge::View<const T,\n2> x,\n"
        "opforge::View<const T,\n1> bias,\n"
        "opforge::View<const bool,\nopforge::kAnyRank> flags,\n"
        "opforge::Views<const T,\n1> more,\n"
        "int64_t a,\ndouble b,\nstd::string_view c,\nbool d,\n"
        "opforge::List<int64_t> e,\nopforge::List<double> f,\n"
        "opforge::List<opforge_string> g,\nopforge::List<int64_t> h,\n"
        "opforge::View<T,\n2> y,\n"
        "opforge::View<int64_t,\nopforge::kAnyRank> z)"
    )


def test_symbols_and_choices():
    names = [kernel_symbol(ops.sparse_matmul, choice) for choice in dtype_choices(ops.sparse_matmul)]
    assert names[0] == "sparse_matmul_v1_f16_i32"
    assert len(names) == len(set(names)) == 8


def test_operators_with_the_same_sources_share_a_unit():
    group = [ops.sparse_matmul, ops.sparse_matmul_grad_dense, ops.sparse_matmul_grad_values]
    units = kernel_units([*group, ops.mish])
    assert [unit.name for unit in units] == ["org_opforge_mish_v1.cc", "com_example_sparse_matmul_v1_dispatch.cc"]
    assert units[1].text.count("cpu.cc") == 1


def test_table_lists_operators_and_kernels():
    text = table_unit([ops.sparse_matmul], "package", "1.2").text
    assert text.count("const opforge_kernel kernel_0_") == 8
    assert '"com.example", "SparseMatMul", 1,' in text
    assert '"package", "1.2"' in text
    assert "&opforge_kernels::com_example::sparse_matmul_v1_f64_i64" in text


def test_a_kernel_operator_needs_a_cpp_source(tmp_path):
    operator = Operator(
        "test.codegen", "CudaOnly", "(x: T[n]) -> (y: T[n])", types="T: f32", sources=[tmp_path / "k.cu"]
    )
    with pytest.raises(SchemaError, match="a kernel operator without a C\\+\\+ source"):
        kernel_units([operator])
