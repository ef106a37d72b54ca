"""Plugins and models with NVIDIA's own libraries, as far as these need no GPU: registry, fields, parser, builder."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from opforge.build.toolchain import find_compiler
from opforge.cuda import emulate_operators
from opforge.engines.tensorrt._emit import write_plugins
from opforge.engines.tensorrt._prepare import prepare
from tests.unit.tensorrt.conftest import OPERATORS
from tests.unit.tensorrt.test_engine import middle_model

API = Path(__file__).parents[1] / "tensorrt" / "api"
FIELDS = "[('slope', 'FLOAT32'), ('bias', 'FLOAT32'), ('opforge_inputs', 'CHAR'), ('opforge_schema', 'CHAR')]"


def run(*arguments):
    command = [sys.executable, str(Path(__file__).with_name("run.py")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The C++ plugins, compiled against our own declarations of TensorRT's API."""
    folder = tmp_path_factory.mktemp("plugins")
    source, _ = write_plugins(folder, OPERATORS, name="shop")
    (folder / "shop_cuda.so").symlink_to(emulate_operators(list(OPERATORS)).path)
    made = folder / "shop_tensorrt.so"
    command = [*find_compiler().command, "-std=c++17", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{API}"]
    subprocess.run([*command, source, "-o", made, "-ldl"], check=True)
    return made


def test_plugins_in_python_register_and_keep_their_fields():
    done = run("python_plugins")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "[\"test_trt_Gate version 1 namespace 'test.trt'\"]"
    assert lines[1] == FIELDS
    assert lines[2] == "test_trt_Gate test.trt 1 slope=0.25, bias=0.0; "
    assert lines[3] == "True ['DataType.HALF']"
    assert lines[4:6] == ["[True, True, True]", "[True, True, False]"]
    assert "unknown field of a plugin" in lines[6]


def test_plugins_in_cpp_are_loaded_by_the_registry(library):
    """The declarations that they were compiled with lay out TensorRT's interfaces as TensorRT does."""
    done = run("cpp_plugins", library)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines == ["True", "test_trt_Gate 1 test.trt", FIELDS, "test_trt_Gate 1 test.trt", "None"]


def test_the_parser_finds_the_plugin_of_a_prepared_model_and_of_no_other(library, tmp_path):
    """Fault 52, with the real parser. It then ends the process: RTX's networks take no plugins."""
    model = middle_model(rows=2)
    model.opset_import[0].version = 18
    onnx.save(model, tmp_path / "raw.onnx")
    onnx.save(prepare(model, route="plugins"), tmp_path / "prepared.onnx")
    done = run("parse", tmp_path / "raw.onnx", library)
    assert "Plugin not found" in done.stdout, done.stdout + done.stderr
    done = run("parse", tmp_path / "prepared.onnx")
    assert "Plugin not found" in done.stdout
    done = run("parse", tmp_path / "prepared.onnx", library)
    assert "Successfully created plugin: test_trt_Gate" in done.stdout, done.stdout + done.stderr
    assert "not found in plugin node" not in done.stdout


def test_a_model_with_bodies_becomes_an_engine(tmp_path):
    onnx.save(prepare(middle_model(rows=2), route="auto"), tmp_path / "net.onnx")
    done = run("parse", tmp_path / "net.onnx")
    assert "parsed True" in done.stdout, done.stdout + done.stderr
    assert "engine True" in done.stdout, done.stdout + done.stderr


def test_a_node_called_like_a_standard_operator_is_taken_for_it(tmp_path):
    """Why the names of plugins have the domain in them."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    graph = helper.make_graph([helper.make_node("Mish", ["x"], ["y"], domain="any.other")], "net", [value], [result])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("any.other", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), tmp_path / "mish.onnx")
    assert "parsed True" in run("parse", tmp_path / "mish.onnx").stdout


def test_decorated_plugins_register_with_nvidias_own_checks():
    done = run("decorators")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "[TRT]" not in line]
    assert lines[0] == "test_trt_Gate_v1 version 1 namespace 'test_trt'"
    assert lines[1] == "[('slope', 'FLOAT64'), ('bias', 'FLOAT64')]"
    assert lines[2] == "['x', 'w'] {'slope': 'float', 'bias': 'float'}"
    assert lines[3] == "['slope', 'bias'] True"
    assert lines[4].startswith("3 [")
