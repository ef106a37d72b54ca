"""The case study: Linear 768 -> 768 with our own GELU, from PyTorch to a .bin that needs neither Python nor torch.

Run: python -m examples.custom_gelu_case_study
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import onnx
import torch

import opforge as of


@of.formula("examples.learn::CustomGELU")
def custom_gelu(x):
    """GELU in the tanh form, written as in the paper; opforge rewrites it so that the tail keeps its accuracy."""
    return 0.5 * x * (1 + of.tanh(of.sqrt(2 / of.pi) * (x + 0.044715 * x**3)))


class Block(torch.nn.Module):
    """One half of a transformer's feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(768, 768)

    def forward(self, x):
        return custom_gelu(self.linear(x))


def milliseconds(function, rounds: int = 21) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return median(times) * 1e3


def main(folder: Path) -> dict[str, float]:
    torch.manual_seed(0)
    block = Block()
    batch = torch.export.Dim("N", min=1, max=4096)
    path = folder / "block.onnx"
    of.torch.export(block, (torch.zeros(2, 768),), path, dynamic_shapes=({0: batch},), input_names=["x"])
    model = of.onnx.simplify(onnx.load(path))
    onnx.save(model, path)
    print("nodes:", ", ".join(f"{n.domain}::{n.op_type}" if n.domain else n.op_type for n in model.graph.node))

    report = of.compile(path, folder / "block.bin")
    print(report)

    x = np.random.default_rng(0).standard_normal((16, 768), np.float32)
    session = of.Session(folder / "block.bin")
    with torch.no_grad():
        expected = block(torch.from_numpy(x)).numpy()
    (got,) = session.run({"x": x}).values()
    error = float(np.abs(got - expected).max())
    close = bool(np.allclose(got, expected, rtol=1e-4, atol=1e-5))
    print(f"against PyTorch: max |error| {error:.2e}, within rtol 1e-4 and atol 1e-5: {close}")

    comparison = of.compare(path, {"x": x}, rtol=1e-4, atol=1e-5)
    worst = max(row.difference.max_abs for row in comparison.rows)
    print(f"against ONNX Runtime (function body): max |error| {worst:.2e}")

    inputs = {"x": x}
    ours = milliseconds(lambda: session.run(inputs))
    with torch.no_grad():
        tensor = torch.from_numpy(x)
        theirs = milliseconds(lambda: block(tensor))
    print(f"16 x 768: the .bin {ours:.3f} ms, PyTorch eager {theirs:.3f} ms")
    return {"error": error, "close": float(close), "agrees": float(comparison.passed), "nodes": report.program_nodes}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = main(Path(scratch))
    sys.exit(0 if figures["close"] and figures["agrees"] else 1)
