"""What a stranger brings: odd paths, a umask, variables, old packages, models that contradict themselves."""

import os
import shutil
import stat
import sys

import numpy as np
import pytest
from onnx import parser, save

import opforge as of
from opforge.build import wheel
from opforge.cli._targets import author_code
from opforge.codegen.units import cpp_include
from opforge.errors import SchemaError

CONTRADICTION = """
<ir_version: 9, opset_import: ["" : 20]>
graph (float[N,3] x, float[2,N] w) => (float[N,N] y) { y = MatMul(x, w) }
"""


@pytest.mark.compiler
def test_a_kernel_in_a_folder_with_blanks_and_letters_of_other_scripts(opforge, folder, monkeypatch):
    monkeypatch.setenv("OPFORGE_CACHE", str(folder / "cache dir ü"))
    (folder / "mein Ordner 中").mkdir()
    monkeypatch.chdir(folder / "mein Ordner 中")
    made = opforge("new", "PathScale", "--kernel", "--path", "row scale")
    assert "then opforge check 'row scale'" in made.out
    result = opforge("check", "row scale", "--level", "quick")
    assert result.code == 0, result.out + result.err


def test_a_path_that_no_include_can_hold_is_refused(tmp_path):
    with pytest.raises(SchemaError, match="lies at a path that C\\+\\+ cannot include"):
        cpp_include(tmp_path / 'a"b' / "cpu.cc")


def test_new_goes_by_the_umask(opforge, folder):
    before = os.umask(0o077)
    try:
        assert opforge("new", "Private").code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "private").stat().st_mode) == 0o700


@pytest.mark.compiler
@pytest.mark.parametrize("value", ["soon", "0", "-1", "nan"])
def test_a_time_limit_that_is_none(opforge, folder, monkeypatch, value):
    name = f"Timed{abs(hash(value))}"
    assert opforge("new", name, "--path", "timed").code == 0
    monkeypatch.setenv("OPFORGE_CACHE", str(folder / "cache"))
    monkeypatch.setenv("OPFORGE_COMPILE_TIMEOUT", value)
    result = opforge("build", "timed")
    assert result.code == 2
    assert f"OPFORGE_COMPILE_TIMEOUT: no time\n  expected: seconds, more than 0\n  got: {value}" in result.err


@pytest.mark.compiler
def test_a_relative_cache(opforge, folder, monkeypatch):
    monkeypatch.setenv("OPFORGE_CACHE", "here")
    assert opforge("new", "RelativeCache").code == 0
    result = opforge("build", "relative_cache")
    assert result.code == 0, result.err
    assert list((folder / "here").rglob("*.so"))


@pytest.mark.parametrize(("found", "usable"), [("65.5.0", False), ("77.0.1", True), ("83.1", True), ("odd", False)])
def test_old_setuptools_is_not_taken_for_the_backend(monkeypatch, found, usable):
    monkeypatch.setattr(wheel, "version", lambda name: found)
    assert wheel._has_backend() is usable


def test_check_of_a_model_that_contradicts_itself(opforge, folder):
    save(parser.parse_model(CONTRADICTION), "bad.onnx")
    result = opforge("check", "bad.onnx")
    assert result.code == 1
    assert "FAILED shapes: node -> y (MatMul): the model contradicts itself" in result.out
    assert "got: x: [N,3], w: [2,N]" in result.out


def test_one_cause_is_said_once(opforge, folder, monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "require")
    monkeypatch.setenv("CXX", "/no/such/compiler")
    monkeypatch.setenv("OPFORGE_CACHE", str(folder / "cache"))
    assert opforge("new", "Once").code == 0
    result = opforge("check", "once", "--level", "quick")
    assert result.code == 1
    assert result.out.count("no C++ compiler works") == 1
    assert "FAILED library: no C++ compiler works" in result.out


def test_stale_cases_say_where_to_look(opforge, folder):
    assert opforge("new", "Stale").code == 0
    source = folder / "stale" / "op.py"
    source.write_text(source.read_text().replace("(x, *", "(left, *").replace("x * of", "left * of").replace("* x", ""))
    result = opforge("check", "stale", "--level", "quick")
    assert result.code == 1
    assert "expected: left\n  got: x\n  to do: write the cases anew in cases.py beside the declaration" in result.out


@pytest.mark.parametrize("opset", ["0", "3", "99"])
def test_export_with_an_opset_that_is_not_there(opforge, folder, opset):
    result = opforge("export", "opforge.ops:CustomGELU", "-o", "g.onnx", "--opset", opset)
    assert result.code == 2
    assert "there is no such opset\n  expected: 11 to " in result.err
    assert not (folder / "g.onnx").exists()


def test_the_decorator_without_a_name():
    with pytest.raises(SchemaError, match=r'expected: @of\.formula\("domain::Name"\) above the function\n  got: gate'):

        @of.formula
        def gate(x):
            return x


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: of.sum(x), "to do: declare the operator with of.kernel"),
        (lambda x: x.mean(), "to do: declare the operator with of.kernel"),
        (lambda x: x @ x, "a matrix product is not elementwise"),
        (lambda x, *, k=2: x if k > 1 else -x, "do not work on its tensors and attributes"),
    ],
)
def test_what_authors_try_first(function, words):
    with pytest.raises(SchemaError) as caught:
        of.formula("test.strangers::Tried")(function)
    assert words in str(caught.value)


def test_a_misspelt_name_is_left_to_pythons_words():
    with pytest.raises(SchemaError, match="NameError: name 'undefined' is not defined") as caught:
        of.formula("test.strangers::Misspelt")(lambda x: x * undefined)  # noqa: F821
    assert "to do" not in str(caught.value)


def test_a_tensor_for_an_attribute():
    from opforge.ops import clip_sigmoid

    with pytest.raises(TypeError, match="an attribute is a plain value; what is computed or trained is an input"):
        clip_sigmoid(np.ones(2, np.float32), lo=np.ones(1))


def test_a_copy_of_an_operator_loads_as_often_as_one_likes(opforge, folder):
    assert opforge("new", "Copied", "--path", "first").code == 0
    shutil.copytree("first", "second")
    (operator,) = of.load(folder / "first")
    for _ in range(2):
        assert of.load(folder / "second") == [operator]


def test_a_dtype_that_opforge_has_not_names_its_argument():
    from opforge.ops import custom_gelu

    with pytest.raises(TypeError, match=r"CustomGELU, argument x: wrong dtype\n  expected: T: f16, .*\n  got: complex"):
        custom_gelu(np.ones(2, complex))


@pytest.mark.parametrize(("name", "words"), [("torch", "pip install 'opforge\\[torch\\]'"), ("nobodys", "install nob")])
def test_a_module_that_is_not_installed(name, words):
    with pytest.raises(ValueError, match=words), author_code("the module does not load", "net.py"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_opforge_torch_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "opforge.torch", None)

    def absent(module):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(of, "import_module", absent)
    monkeypatch.delitem(vars(of), "torch", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"opforge\.torch needs torch, .*pip install 'opforge\[torch\]'"):
        _ = of.torch
