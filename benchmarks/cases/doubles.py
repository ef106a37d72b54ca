"""Functions of f64 on a million elements against ONNX Runtime (where it has them) and PyTorch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._case import OURS, Case, Prepared

if TYPE_CHECKING:
    import torch

N = 1 << 20


def _onnx(operator: str, x: torch.Tensor, peer: Callable[[torch.Tensor], torch.Tensor], threads: int) -> Prepared:
    """A model of one node in opforge and ONNX Runtime, and PyTorch's function."""
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper

    import opforge as of

    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [N]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with tempfile.TemporaryDirectory(prefix="opforge-bench-") as folder:
        of.compile(model, Path(folder) / "f64.bin")
        session = of.Session(Path(folder) / "f64.bin", threads=threads)
    inputs = {"x": x.numpy()}
    runs: dict[str, Callable[[], Any]] = {OURS: lambda: session.run(inputs), "torch": lambda: peer(x)}
    if operator != "Erf":  # ONNX Runtime has it in f32 alone
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        engine = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        runs["onnxruntime"] = lambda: engine.run(None, inputs)
    np.testing.assert_allclose(session.run(inputs)["y"], peer(x).numpy(), rtol=1e-14)
    return Prepared(runs=runs)


def _prepare(threads: int) -> Mapping[str, Prepared]:
    import torch

    torch.set_num_threads(threads)
    import opforge.torch  # noqa: F401
    from opforge.ops import custom_gelu

    x = torch.randn(N, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    peers = {"Tanh": torch.tanh, "Exp": torch.exp, "Erf": torch.erf, "Sigmoid": torch.sigmoid, "Log": torch.log}
    parts = {name: _onnx(name, x.abs() if name == "Log" else x, peer, threads) for name, peer in peers.items()}
    gelu = partial(torch.nn.functional.gelu, approximate="tanh")
    # Of the tail, 1 + tanh keeps few digits.
    torch.testing.assert_close(custom_gelu(x), gelu(x), rtol=1e-12, atol=1e-15)
    parts["CustomGELU"] = Prepared(runs={OURS: lambda: custom_gelu(x), "torch": lambda: gelu(x)})
    return parts


CASES = [
    Case(
        "f64 1M",
        _prepare,
        {
            **dict.fromkeys(("Tanh/onnxruntime", "Tanh/torch", "Exp/onnxruntime", "Exp/torch", "Erf/torch"), 1.0),
            **dict.fromkeys(("Sigmoid/onnxruntime", "Log/onnxruntime", "Log/torch", "CustomGELU/torch"), 1.0),
        },
        rounds=3,
        needs=("onnxruntime", "torch"),
    )
]
