"""Engines: built, written, loaded elsewhere and run, with the stand-in for TensorRT and emulated kernels."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import opforge as of
from opforge.engines.tensorrt import TensorRt, _engine, _modules, engines
from opforge.engines.tensorrt._register import registered_ids
from opforge.errors import ArgumentError, CorruptFileError, DtypeError, UnsupportedError
from tests.unit.tensorrt.conftest import gate


def middle_model(rows="N"):
    """Gate between standard operators: neither its inputs nor its outputs are the model's."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["a"]),
        helper.make_node("Gate", ["a", "w"], ["b"], domain="test.trt", slope=0.25),
        helper.make_node("Add", ["b", "x"], ["y"]),
    ]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4], [0.1, 0.2, 0.3, 9.0])
    shape = [rows, 4]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], [weights],
        value_info=[helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "ab"],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("test.trt", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


PROFILE = {"x": ((1, 4), (2, 4), (8, 4))}


def expected(x):
    return gate.reference(x * x, np.array([0.1, 0.2, 0.3, 9.0]), slope=0.25) + x


def build(tmp_path, **options):
    path = tmp_path / "net.engine"
    of.tensorrt.build(middle_model(), path, profiles=PROFILE, **options)
    return path


@pytest.mark.parametrize("outputs", [(), ("b",)])
@pytest.mark.parametrize("route", ["plugins", "auto"])
def test_a_node_in_the_middle_computes_the_same_marked_as_output_or_not(kernels, gpu, tmp_path, rng, route, outputs):
    loaded = of.tensorrt.load(build(tmp_path, route=route, outputs=outputs))
    assert [info.name for info in loaded.inputs] == ["x"]
    assert loaded.inputs[0].shape == (None, 4)
    assert list(loaded.outputs) == ["y", *outputs]
    for rows in (1, 8, 3):
        x = rng.normal(size=(rows, 4)).astype(np.float32)
        found = loaded.run({"x": x})
        np.testing.assert_allclose(found["y"], expected(x), rtol=1e-5, atol=1e-5)
        if outputs:
            np.testing.assert_allclose(found["b"], expected(x) - x, rtol=1e-5, atol=1e-5)


def test_an_engine_is_loaded_in_a_process_that_registered_nothing(kernels, gpu, tmp_path, monkeypatch):
    """Fault 52: TensorRT alone says that it could not find the plugin."""
    path = build(tmp_path, route="plugins")
    kernels.get_plugin_registry().creators.clear()
    monkeypatch.setattr("opforge.engines.tensorrt._register._creators", {})
    log = _Log()
    assert kernels.Runtime(log).deserialize_cuda_engine(path.read_bytes()) is None
    assert "could not find plugin: test_trt_Gate" in log.lines[0]
    of.tensorrt.load(path)
    assert "test_trt_Gate" in {name.name for name in registered_ids(kernels)}


class _Log:
    def __init__(self):
        self.lines = []

    def log(self, severity, text):
        self.lines.append(text)


def test_an_engine_of_another_declaration_is_refused(kernels, gpu, tmp_path):
    path = build(tmp_path, route="plugins")
    data = path.read_bytes()
    wrong = [ord(c) for c in "0" * 8]
    held = str([ord(c) for c in gate.schema_hash[:8]])[1:-1]
    assert held.encode() in data
    path.write_bytes(data.replace(held.encode(), str(wrong)[1:-1].encode()))
    with pytest.raises(CorruptFileError, match=r"built with another declaration(.|\n)*build the engine again"):
        of.tensorrt.load(path)
    path.write_bytes(b"junk")
    with pytest.raises(CorruptFileError, match=r"does not take this engine(.|\n)*magicTag"):
        of.tensorrt.load(path)


def test_profiles_are_checked_before_anything_is_built(kernels):
    def refused(words, profiles=()):
        with pytest.raises(ArgumentError, match=words):
            of.tensorrt.build(middle_model(), profiles=profiles)

    refused(r"need a profile(.|\n)*x \[-1, 4\]")
    refused("there is no such input", {"z": PROFILE["x"]})
    refused("a profile does not fit its input", {"x": ((2, 4), (1, 4), (8, 4))})
    refused("a profile does not fit its input", {"x": ((2, 3), (2, 3), (8, 3))})
    refused("a profile lacks inputs", [PROFILE, {}])
    with pytest.raises(ArgumentError, match=r"no such value(.|\n)*'q'"):
        of.tensorrt.build(middle_model(), profiles=PROFILE, outputs=("q",))


def test_precision_is_a_flag_where_there_is_one(kernels, monkeypatch):
    of.tensorrt.build(middle_model(), profiles=PROFILE, precision="f16")
    with pytest.raises(ArgumentError, match="unknown precision"):
        of.tensorrt.build(middle_model(), precision="fp16")
    monkeypatch.setattr(kernels, "BuilderFlag", type("BuilderFlag", (), {}))
    with pytest.raises(UnsupportedError, match=r"element types of the model only(.|\n)*export the model in f16"):
        of.tensorrt.build(middle_model(), profiles=PROFILE, precision="f16")


def test_the_words_of_a_plugin_come_out_of_a_build(trt, monkeypatch):
    monkeypatch.setenv("OPFORGE_JIT", "off")
    with pytest.raises(of.errors.ToolchainError, match=r"test.trt::Gate:1(.|\n)*OPFORGE_JIT=off"):
        of.tensorrt.build(middle_model(), profiles=PROFILE, route="plugins")


def test_inputs_are_checked(kernels, gpu, tmp_path):
    loaded = of.tensorrt.load(build(tmp_path, route="plugins"))
    with pytest.raises(ArgumentError, match="not built for this shape"):
        loaded.run({"x": np.ones((9, 4), np.float32)})
    with pytest.raises(DtypeError, match="wrong dtype"):
        loaded.run({"x": np.ones((1, 4))})
    with pytest.raises(ArgumentError, match="no such input"):
        loaded.run({"z": np.ones((1, 4), np.float32)})


def test_the_engine_of_the_table_builds_runs_writes_and_profiles(kernels, gpu, tmp_path, rng):
    import onnx

    path = tmp_path / "net.onnx"
    onnx.save(middle_model(rows=2), path)
    x = rng.normal(size=(2, 4)).astype(np.float32)
    for engine in engines:
        engine.prepare()
        np.testing.assert_allclose(engine.load(path).run({"x": x})["y"], expected(x), rtol=1e-5, atol=1e-5)
    rows = engines[1].profile(path, {"x": x}, runs=3)
    assert {(row.device, row.runs) for row in rows} == {("cuda", 3)}
    onnx.save(middle_model(), path)
    written = engines[1].write(path, tmp_path / "net.engine", sizes={"N": 2})
    assert written.files == (tmp_path / "net.engine",)
    np.testing.assert_allclose(engines[1].load(written.files[0]).run({"x": x})["y"], expected(x), rtol=1e-5, atol=1e-5)


def test_availability_says_what_is_missing(monkeypatch):
    def state(version, reason):
        monkeypatch.setattr(_modules, "version", lambda: version)
        monkeypatch.setattr(_engine, "no_gpu_reason", lambda: reason)
        return TensorRt("tensorrt", route="auto").availability()

    absent = state(None, "")
    assert (absent.ok, absent.reason) == (False, "the package tensorrt is not installed")
    assert "pip install tensorrt" in absent.hint
    assert "NVIDIA's own index" in absent.hint
    assert state("9.3.0", "").reason == "version 9.3.0 is too old, 10.0 is needed"
    assert state("10.13.0.35", "the driver sees no device").reason == "no GPU: the driver sees no device"
    assert state("10.13.0.35", "").ok


def test_without_the_package_the_facade_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorrt", None)
    with pytest.raises(ModuleNotFoundError, match="pip install tensorrt"):
        of.tensorrt.register()


def test_a_gpu_less_machine_says_so(kernels, monkeypatch, tmp_path):
    from opforge.build import cuda_driver

    cuda_driver.find_devices.cache_clear()
    monkeypatch.setenv("OPFORGE_CUDA_DRIVER", "/nowhere/libcuda.so.1")
    path = build(tmp_path, route="plugins")
    with pytest.raises(UnsupportedError, match="no GPU"):
        of.tensorrt.load(path)
    cuda_driver.find_devices.cache_clear()
