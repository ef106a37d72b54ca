"""Every example runs and does what it says; `make test` fails where a reader would."""

import runpy

import pytest

import opforge as of
from examples import clip_sigmoid, custom_gelu_case_study, mod_sigmoid, sparse_matmul
from examples.block_float import study
from examples.fake_quantise import train
from examples.nhwc16 import study as nhwc16
from examples.pruned_conv import study as pruned
from opforge import cli

pytestmark = [pytest.mark.compiler, pytest.mark.torch]


def test_clip_sigmoid(tmp_path, capsys):
    figures = clip_sigmoid.main(tmp_path)
    assert figures == {"checks": 1.0, "difference": 0.0, "agrees": 1.0, "clipped gradients": 4.0}
    assert "ONNX Runtime runs the same model through the function body: agrees" in capsys.readouterr().out


def test_mod_sigmoid_learns():
    figures = mod_sigmoid.main(steps=150)
    assert figures["first"] > 0.02
    assert figures["last"] < 0.0002
    assert figures["error"] < 0.03
    assert figures["derivatives"] < 1e-8


def test_custom_gelu_case_study(tmp_path):
    figures = custom_gelu_case_study.main(tmp_path)
    assert figures["close"] == 1.0, "rtol 1e-4, atol 1e-5 against PyTorch"
    assert figures["agrees"] == 1.0, "the same against ONNX Runtime"
    assert figures["nodes"] == 1, "the activation runs inside the matrix product"
    assert figures["error"] < 1e-5


def test_sparse_matmul(tmp_path):
    figures = sparse_matmul.main(tmp_path)
    assert figures["difference"] < 1e-4
    assert figures["gradient"] < 1e-5
    assert figures["bin"] == 1.0


def test_fake_quantise_trains_and_deploys(tmp_path):
    figures = train.main(tmp_path, steps=200)
    assert figures["last"] < 0.3 * figures["first"]
    assert figures["accuracy"] > 0.9
    assert figures["error"] < 1e-4
    assert figures["nodes"] <= 3, "weights are quantised once, when the model is compiled"


def test_block_float_study(tmp_path):
    figures = study.main(tmp_path, steps=200)
    assert figures["8 bits"] > 0.95 and figures["8 distance"] < study.LIMIT
    assert figures["3 distance"] > study.LIMIT and figures["3 trained"] > figures["3 bits"]
    assert figures["error"] < 1e-3 and figures["same"] > 0.99


def test_pruned_convolution(tmp_path):
    """How fast it is, is the machine's affair; that the file holds fewer weights is not."""
    figures = pruned.main(tmp_path, steps=40, rounds=1)
    assert figures["dense"] > 0.6
    assert figures["trained"] > max(0.6, figures["pruned"])
    assert figures["smaller"] > 2.5
    assert figures["error"] < 1e-4 and figures["chosen"] < 1e-4


def test_a_layout_inside_of_an_operator(tmp_path, capsys):
    figures = nhwc16.main(tmp_path, steps=60)
    assert figures["accuracy"] > 0.8
    assert figures["error"] < 1e-4
    assert figures["ONNX"] == figures[".bin"] == 2
    capsys.readouterr()
    assert cli.main(["inspect", str(tmp_path / "digits.bin"), "--nodes"]) == 0
    assert capsys.readouterr().out.count("nhwc16") == 2


@pytest.mark.parametrize("folder", ["fake_quantise", "block_float", "pruned_conv", "nhwc16", "operator_package"])
def test_operators_of_examples_pass_the_check(folder):
    for operator in of.load(f"examples/{folder}"):
        report = of.check(operator, level="quick", isolate=False)
        assert report.passed, report.failures


def test_an_example_runs_as_a_program(capsys):
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(clip_sigmoid.__file__, run_name="__main__")
    assert stop.value.code == 0
    assert "checks passed" in capsys.readouterr().out
