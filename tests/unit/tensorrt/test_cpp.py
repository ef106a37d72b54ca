"""Plugins in C++: the generated file compiles against declarations of TensorRT's API and does what TensorRT asks."""

import subprocess
from pathlib import Path

import pytest

from opforge.build.toolchain import find_compiler
from opforge.cuda import emulate_operators
from opforge.engines.tensorrt._emit import write_plugins
from opforge.errors import ArgumentError
from opforge.schema import Operator
from tests.unit.tensorrt.conftest import OPERATORS

HERE = Path(__file__).parent
FLAGS = ["-std=c++17", "-O0", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{HERE / 'api'}", "-fvisibility=hidden"]


def compiled(*arguments):
    done = subprocess.run([*find_compiler().command, *FLAGS, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder with the plugins' library, the emulated kernels beside it, and the test's program."""
    folder = tmp_path_factory.mktemp("plugins")
    source, script = write_plugins(folder, OPERATORS, name="shop")
    (folder / "shop_cuda.so").symlink_to(emulate_operators(list(OPERATORS)).path)
    compiled("-shared", source, "-o", folder / "shop_tensorrt.so", "-ldl")
    compiled(HERE / "plugin_test.cpp", "-o", folder / "plugin_test", "-ldl")
    assert "add_library(shop_tensorrt MODULE" in script.read_text()
    return folder


def test_the_generated_file_is_whole(library):
    text = (library / "shop_tensorrt.cpp").read_text()
    assert '#include "' not in text
    assert "test_trt_Gate version 1 namespace 'test.trt'" in text
    assert '#define OPFORGE_TENSORRT_LIBRARY "shop_cuda.so"' in text


def test_the_library_exports_what_tensorrt_looks_up_and_no_more(library):
    found = subprocess.run(
        ["nm", "-D", "--defined-only", library / "shop_tensorrt.so"], capture_output=True, text=True, check=True
    )
    names = {line.split()[-1] for line in found.stdout.splitlines() if line.split()[1] in "TD"}
    assert {"getCreators", "setLoggerFinder", "opforge_tensorrt_error"} <= names
    assert not [name for name in names if "opforge" in name and name != "opforge_tensorrt_error"]


def test_plugins_answer_as_tensorrt_asks(library):
    done = subprocess.run([library / "plugin_test", library / "shop_tensorrt.so"], capture_output=True, text=True)
    assert done.stdout == "fine\n", done.stdout + done.stderr


def test_without_kernels_the_library_says_what_it_looked_for(library, tmp_path):
    (tmp_path / "alone.so").symlink_to(library / "shop_tensorrt.so")
    alone = tmp_path / "copy.so"
    alone.write_bytes((library / "shop_tensorrt.so").read_bytes())
    done = subprocess.run([library / "plugin_test", alone], capture_output=True, text=True, env={"PATH": "/usr/bin"})
    assert done.returncode == 1
    assert "no library with CUDA kernels was found" in done.stdout
    assert "opforge build PACKAGE --device cuda" in done.stdout


def test_kernels_are_found_by_the_variable_too(library, tmp_path):
    alone = tmp_path / "copy.so"
    alone.write_bytes((library / "shop_tensorrt.so").read_bytes())
    environment = {"PATH": "/usr/bin", "OPFORGE_LIBRARY_PATH": str(library)}
    done = subprocess.run([library / "plugin_test", alone], capture_output=True, text=True, env=environment)
    assert done.stdout == "fine\n", done.stdout + done.stderr


def test_names_and_operators_are_checked(tmp_path):
    with pytest.raises(ArgumentError, match="not a name for files"):
        write_plugins(tmp_path, OPERATORS, name="a-b")
    with pytest.raises(ArgumentError, match="not the name of a file"):
        write_plugins(tmp_path, OPERATORS, name="ab", library="../x.so")
    bare = Operator("test.trt", "Bare", "(x: f32[n]) -> (y: f32[n])", sources=("cpu.cc",))
    with pytest.raises(ArgumentError, match=r"no operator can be a plugin(.|\n)*test.trt::Bare:1"):
        write_plugins(tmp_path, [bare], name="ab")
