"""LSTM, GRU and RNN against float64 and torch, on every instruction set and number of threads; what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import opforge as of
from opforge.bin.native import native
from opforge.errors import OpforgeError
from tests.unit.kernels.test_cases import others
from tests.unit.recurrent import cases, reference


def test_float64_threads_and_instruction_sets() -> None:
    """Every level is right; those of the fast profile give equal bits."""
    results = {native().isa(): cases.digests((1, 2, 8))}
    for level in others():
        command = [sys.executable, "-m", "tests.unit.recurrent.cases"]
        done = subprocess.run(
            command, env={**os.environ, "OPFORGE_ISA": level}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{level}: {done.stderr[-2000:]}"
        results[level] = json.loads(done.stdout)
    if "v3" in results and "v4" in results:
        assert results["v3"] == results["v4"]


def test_packed_and_plain_weights_give_equal_bits() -> None:
    rng = np.random.default_rng(3)
    for kind in ("LSTM", "GRU", "RNN"):
        case = cases.make(rng, kind, 5, 2, 6, 20, direction="bidirectional", linear_before_reset=1)
        if kind != "GRU":
            case.attributes.pop("linear_before_reset")
        packed = case.run()[0]
        case.constant = False
        for a, b in zip(packed, case.run()[0], strict=True):
            assert a.tobytes() == b.tobytes(), kind


def test_weights_are_packed_when_constant(tmp_path: Path) -> None:
    case = cases.make(np.random.default_rng(3), "LSTM", 5, 2, 6, 20)
    report = of.compile(case.model()[0], tmp_path / "m.bin")
    assert report.algorithms == {"packed gates": 1}


def test_half_precision_rounds_at_the_result(tmp_path: Path) -> None:
    case = cases.make(np.random.default_rng(3), "GRU", 5, 2, 6, 20, dtype=np.float16)
    for got, exact in zip(case.run()[0], case.expected(), strict=True):
        assert got.dtype == np.float16
        np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2**-11, atol=2e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_torch_layers(kind: str, bidirectional: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(12, 24, bidirectional=bidirectional)
    x = torch.randn(7, 3, 12)
    with torch.no_grad():
        y, last = layer(x)
    order = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}[kind]  # torch's gates are i f g o and r z n

    def gates(name: str) -> np.ndarray:
        parts = []
        for suffix in ("", "_reverse")[: 1 + bidirectional]:
            data = getattr(layer, f"{name}_l0{suffix}").detach().numpy()
            parts.append(data.reshape(len(order), 24, -1)[order].reshape(data.shape))
        return np.stack(parts)

    inputs = {
        "X": x.numpy(),
        "W": gates("weight_ih"),
        "R": gates("weight_hh"),
        "B": np.concatenate([gates("bias_ih"), gates("bias_hh")], axis=1),
    }
    attributes = {"direction": "bidirectional"} if bidirectional else {}
    case = cases.Case(kind, inputs, {**attributes, **({"linear_before_reset": 1} if kind == "GRU" else {})})
    case.outputs = [0, 1, 2] if kind == "LSTM" else [0, 1]
    got = case.run()[0]
    np.testing.assert_allclose(got[0].transpose(0, 2, 1, 3).reshape(y.shape), y.numpy(), atol=2e-6)
    states = last if kind == "LSTM" else (last,)
    for mine, other in zip(got[1:], states, strict=True):
        np.testing.assert_allclose(mine, other.numpy(), atol=2e-6)


def test_not_a_number_stays_in_its_sample() -> None:
    case = cases.make(np.random.default_rng(3), "LSTM", 3, 2, 4, 20, present="B")
    x = case.inputs["X"]
    assert x is not None
    clean = case.run()[0]
    x[1, 0, 0] = np.nan
    dirty = case.run()[0]
    assert np.isnan(dirty[0][1:, :, 0]).all()
    assert dirty[0][:, :, 1].tobytes() == clean[0][:, :, 1].tobytes()


def test_refused() -> None:
    """Lengths beyond the sequence, unknown functions and shapes that do not fit are errors with their words."""
    rng = np.random.default_rng(3)
    case = cases.make(rng, "LSTM", 3, 2, 4, 5, present="L")
    case.inputs["sequence_lens"] = np.array([1, 4], np.int32)
    with pytest.raises(OpforgeError, match=r"sequence_lens\[1\] is 4, the sequences have 3 steps"):
        case.run()
    case = cases.make(rng, "RNN", 3, 2, 4, 5, activations=["Gelu"])
    with pytest.raises(OpforgeError, match="activations are not functions of ONNX's list"):
        case.run()
    case = cases.make(rng, "GRU", 3, 2, 4, 5, activations=["Tanh"])
    with pytest.raises(OpforgeError, match="as many as the directions need"):
        case.run()
    for constant in (False, True):
        case = cases.make(rng, "GRU", 3, 2, 4, 5, constant=constant, present="H")
        case.inputs["initial_h"] = np.zeros((1, 3, 5), np.float32)
        with pytest.raises(OpforgeError, match="initial_h does not have the shape"):
            case.run()


def test_reference_agrees_with_onnx() -> None:
    """The equations of the reference are those of onnx's own evaluator where that has the feature."""
    from onnx.reference import ReferenceEvaluator

    for kind in ("LSTM", "GRU", "RNN"):
        case = cases.make(np.random.default_rng(5), kind, 4, 2, 3, 5, present="B", dtype=np.float64)
        model, feeds = case.model()
        for a, b in zip(ReferenceEvaluator(model).run(None, feeds), case.expected(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, err_msg=kind)
    assert set(reference.USUAL) == {"LSTM", "GRU", "RNN"}
