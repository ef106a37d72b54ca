"""Quantisation-aware training with FakeQuantise: weights of 4 bits that learn, then a .bin with the same answers.

Run: python -m examples.fake_quantise.train
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import opforge as of
from examples.fake_quantise.op import fake_quantise


class QuantisedLinear(torch.nn.Linear):
    """A linear layer that computes with weights on a grid of 4 bits; the weights behind it stay real numbers."""

    scale = 0.125

    def forward(self, x):
        weight = fake_quantise(self.weight, scale=self.scale, low=-8.0, high=7.0)
        return torch.nn.functional.linear(x, weight, self.bias)


def rings(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Points in the plane: class 1 inside a ring, class 0 elsewhere."""
    x = torch.rand(count, 2, generator=generator) * 4 - 2
    radius = x.norm(dim=1)
    return x, ((radius > 0.7) & (radius < 1.5)).float()


def main(folder: Path, steps: int = 400) -> dict[str, float]:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    x, label = rings(1024, generator)
    model = torch.nn.Sequential(QuantisedLinear(2, 24), torch.nn.ReLU(), QuantisedLinear(24, 16), torch.nn.ReLU(),
                                QuantisedLinear(16, 1))  # fmt: skip
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], label)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if step % 100 == 0:
            print(f"step {step:4d}  loss {losses[-1]:.4f}")
    test_x, test_label = rings(2048, generator)
    with torch.no_grad():
        logits = model(test_x)[:, 0]
    accuracy = ((logits > 0) == (test_label > 0)).float().mean().item()
    print(f"step {steps:4d}  loss {losses[-1]:.4f}, accuracy on new points {100 * accuracy:.1f} % with 4-bit weights")

    path = folder / "rings.onnx"
    of.torch.export(model.eval(), (test_x,), path, input_names=["x"])
    # Weights are constants now, so the compiler computes FakeQuantise once, with our kernel, and stores the result.
    report = of.compile(path, folder / "rings.bin")
    print(f"compiled: {report.source_nodes} nodes -> {report.program_nodes}: {report.operators}")
    (got,) = of.Session(folder / "rings.bin").run({"x": test_x.numpy()}).values()
    error = float(np.abs(got[:, 0] - logits.numpy()).max())
    print(f"the .bin against PyTorch: max |error| {error:.1e}")
    return {"first": losses[0], "last": losses[-1], "accuracy": accuracy, "error": error, "nodes": report.program_nodes}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = main(Path(scratch))
    sys.exit(0 if figures["accuracy"] > 0.9 and figures["error"] < 1e-4 else 1)
