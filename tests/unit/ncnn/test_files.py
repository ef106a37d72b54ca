"""The files of a converted model: what they hold, and what is said of those that are cut, damaged or foreign."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from opforge.engines.ncnn._convert import convert
from opforge.engines.ncnn._files import read_files, write_files
from opforge.engines.ncnn._net import Layer, param_text, parse_param
from opforge.engines.ncnn._run import Loaded
from opforge.errors import ArgumentError, CorruptFileError, DtypeError, UnsupportedError
from tests.unit.ncnn.conftest import draw, model_of


@pytest.fixture
def net(tmp_path):
    """A convolution and a custom node between built-in layers."""
    model = model_of(
        [("Conv", "x w b", "a", {}), ("com.example::CustomGELU", "a", "c", {}), ("Relu", "c", "y", {})],
        {"x": ([1, 3, 7, 9], "f")},
        constants={"w": draw((4, 3, 3, 3)), "b": draw((4,))},
        imports=[("com.example", 1)],
    )
    write_files(convert(model), tmp_path / "net.param")
    return tmp_path / "net.param"


def test_the_text_is_what_ncnn_documents(net):
    lines = net.read_text().splitlines()
    assert lines[0] == "7767517" and lines[1] == "4 4"
    assert re.split(r"\s+", lines[2]) == ["Input", "x", "0", "1", "x", "0=9", "1=7", "2=3"]
    conv = lines[3].split()
    assert conv[0] == "Convolution" and {"0=4", "1=3", "5=1", "6=108"} <= set(conv)
    custom = lines[4].split()
    assert custom[0] == "com_example_CustomGELU_1"
    assert custom[6:] == ["-23320=1,1", "-23321=1,544", "-23322=1,1", "-23323=1,1", "24=1"]
    # Weights with the tag that says float32, the bias without one.
    assert net.with_suffix(".bin").stat().st_size == 4 + 108 * 4 + 4 * 4
    described = json.loads(net.with_suffix(".json").read_text())
    assert described["operators"]["com_example_CustomGELU_1"]["key"] == "com.example::CustomGELU:1"
    assert described["inputs"] == [{"name": "x", "blob": "x", "dtype": "float32", "shape": [1, 3, 7, 9], "form": 1}]


@pytest.mark.parametrize("suffix", [".param", ".bin", ".json"])
def test_a_file_that_is_cut_is_an_error_wherever_it_is_cut(net, suffix):
    file = net.with_suffix(suffix)
    whole = file.read_bytes()
    step = max(1, len(whole) // 40)
    for size in {*range(0, len(whole), step), len(whole) - 1}:
        file.write_bytes(whole[:size])
        if suffix == ".json" and size == len(whole) - 1:
            continue  # the last byte ends the line
        with pytest.raises(CorruptFileError, match=r"cut off|not a description"):
            Loaded(net)
    file.unlink()
    with pytest.raises(CorruptFileError, match=rf"(?s)a file of the converted model is missing.*{suffix}"):
        Loaded(net)


@pytest.mark.parametrize("suffix", [".param", ".bin"])
def test_a_byte_that_changed_is_an_error(net, suffix):
    file = net.with_suffix(suffix)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(CorruptFileError, match="the file is damaged"):
        Loaded(net)


def forge(net, change):
    """Change the .param and make the description agree."""
    import zlib

    text = change(net.read_text())
    net.write_text(text)
    described = json.loads(net.with_suffix(".json").read_text())
    described["files"]["param"] = {"bytes": len(text.encode()), "crc32": zlib.crc32(text.encode())}
    net.with_suffix(".json").write_text(json.dumps(described))


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda t: t.replace("7767517", "7767518"), "not a .param of ncnn"),
        (lambda t: "", "not a .param of ncnn"),
        (lambda t: t.replace("\n4 4\n", "\n5 4\n"), "is cut off"),
        (lambda t: t.replace("\n4 4\n", "\n4 3\n"), "the number of blobs is wrong"),
        (lambda t: t.replace("\n4 4\n", "\n4\n"), "has no counts"),
        (lambda t: t.replace("1 1 c y", "1 1 z y"), "a blob that no layer before gives"),
        (lambda t: t.replace("1 1 c y", "1 1 c c"), "a blob is given twice"),
        (lambda t: t.replace("1 1 c y", "1 9 c y"), "the line of a layer is cut off"),
        (lambda t: t.replace("-23321=1,544", "-23321=2,544"), "a parameter cannot be read"),
        (lambda t: t.replace("-23321=1,544", "-23321=1,1000"), "not those of the operator"),
        (lambda t: t.replace("-23320=1,1", "-23320=1,2"), "the layer's inputs are described wrongly"),
        (lambda t: t.replace("24=1", "24=2"), "the layer's inputs are described wrongly"),
        (lambda t: t.replace("1 1 c y", "1 1 c z"), "the description names no blob"),
    ],
)
def test_a_network_that_does_not_hold_together_never_reaches_ncnn(net, change, words):
    """Its reader believes counts, and writes outside of its tables."""
    forge(net, change)
    with pytest.raises(CorruptFileError, match=re.escape(words)):
        Loaded(net)


def test_a_kind_of_layer_that_ncnn_does_not_have_is_an_error_and_no_crash(net):
    forge(net, lambda text: text.replace("ReLU ", "Reflu"))
    with pytest.raises(UnsupportedError, match=r"(?s)ncnn refuses the network.*Reflu.*upgrade ncnn"):
        Loaded(net)


def test_weights_that_do_not_suffice_are_an_error(net):
    forge(net, lambda text: text.replace("6=108", "6=10800"))
    with pytest.raises(UnsupportedError, match="ncnn refuses the weights"):
        Loaded(net)


def test_inputs_are_held_against_the_model(net, tmp_path):
    loaded = Loaded(net)
    x = draw((1, 3, 7, 9))
    with pytest.raises(ArgumentError, match=r"(?s)there is no such input.*z"):
        loaded.run({"z": x})
    with pytest.raises(ArgumentError, match=r"(?s)inputs are missing.*nothing for 'x'"):
        loaded.run({})
    with pytest.raises(ArgumentError, match=r"(?s)input 'x': .*the wrong shape.*float32\[1, 3, 7, 9\].*\[1, 3, 7, 8\]"):
        loaded.run({"x": x[..., 1:]})
    with pytest.raises(DtypeError, match=r"(?s)input 'x': an input has the wrong dtype.*float32.*float64"):
        loaded.run({"x": x.astype(np.float64)})
    model = model_of(
        [("Gather", "e i", "a", {}), ("Relu", "a", "y", {})],
        {"i": (["T"], "q")},
        constants={"e": draw((7, 5))},
    )
    write_files(convert(model), tmp_path / "rows.param")
    rows = Loaded(tmp_path / "rows.param")
    with pytest.raises(ArgumentError, match="does not fit 32 bits"):
        rows.run({"i": np.array([2**40])})
    with pytest.raises(UnsupportedError, match="ncnn has no empty tensors"):
        rows.run({"i": np.zeros(0, np.int64)})


def test_layers_are_measured(net):
    times = Loaded(net, threads=1).measure({"x": draw((1, 3, 7, 9))}, 3)
    assert [t.operator for t in times] == ["Convolution", "com.example::CustomGELU", "ReLU"]
    assert all(t.runs == 3 and t.nanoseconds > 0 and t.device == "cpu" for t in times)


def test_names_that_ncnn_cannot_read_are_changed():
    model = model_of([("Relu", "x", "y", {})], {"x": ([3], "f")})
    model.graph.input[0].name = model.graph.node[0].input[0] = "a b\tc" + "d" * 300
    network = convert(model)
    assert network.inputs[0].name.startswith("a b")
    names = [name for layer in network.layers for name in (layer.name, *layer.outputs)]
    assert all(len(n) <= 255 and not re.search(r"\s", n) for n in names)
    assert len(parse_param(param_text(network.layers), "text")) == 2


def test_a_param_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"not the name of a \.param"):
        read_files(tmp_path / "net.bin")
    (tmp_path / "foreign.param").write_text(param_text([Layer("Input", "x", [], ["x"])]))
    with pytest.raises(CorruptFileError, match="a file of the converted model is missing"):
        read_files(Path(tmp_path / "foreign.param"))
