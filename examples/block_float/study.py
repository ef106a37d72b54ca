"""How many bits a network needs: digits classified with weights and activations in block floating point.

A network trained in f32 is rounded to fewer and fewer bits. Where its outputs move by more than 1e-3 on average, it
is trained a little further with the rounding in place, which is the remedy, and what that brings is shown.

Run: python -m examples.block_float.study
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

import opforge as of
from examples.block_float.op import block_float

LIMIT = 1e-3
"""Mean distance of a probability from that of the f32 network above which the remedy is taken."""


class Network(torch.nn.Module):
    """64 pixels, 32 units, 10 digits; `bits` None computes in f32."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out, self.bits = torch.nn.Linear(64, 32), torch.nn.Linear(32, 10), None

    def rounded(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.bits is None else block_float(x, bits=self.bits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.hidden, self.out):
            if layer is self.out:
                x = torch.relu(x)
            x = torch.nn.functional.linear(self.rounded(x), self.rounded(layer.weight), layer.bias)
        return x


def train(network: Network, x: torch.Tensor, digit: torch.Tensor, steps: int, rate: float) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x), digit).backward()
        optimiser.step()


def measure(network: Network, x: torch.Tensor, digit: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
    """Return the accuracy, and the mean distance of probabilities from the right ones."""
    with torch.no_grad():
        found = network(x).softmax(dim=1)
    return float((found.argmax(dim=1) == digit).float().mean()), float((found - right).abs().mean())


def main(folder: Path, steps: int = 300) -> dict[str, float]:
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    x, digit = torch.tensor(pixels[order] / 16, dtype=torch.float32), torch.tensor(digits[order])
    split = len(digit) * 3 // 4
    network = Network()
    train(network, x[:split], digit[:split], steps, 1e-2)
    weights = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.no_grad():
        right = network(x[split:]).softmax(dim=1)
    figures = {"f32": measure(network, x[split:], digit[split:], right)[0]}
    print(f"f32: {figures['f32']:.1%} of unseen digits")
    for bits in (8, 6, 4, 3):
        network.bits = bits
        network.load_state_dict(weights)
        accuracy, distance = measure(network, x[split:], digit[split:], right)
        figures[f"{bits} bits"], figures[f"{bits} distance"] = accuracy, distance
        line = f"{bits} bits: {accuracy:.1%}, probabilities move by {distance:.1e} on average"
        if distance > LIMIT:
            train(network, x[:split], digit[:split], steps // 3, 2e-3)
            figures[f"{bits} trained"], _ = measure(network, x[split:], digit[split:], right)
            line += f"; trained further with the rounding in place: {figures[f'{bits} trained']:.1%}"
        print(line)

    file = folder / "digits.onnx"
    shapes = {"x": {0: torch.export.Dim("N")}}
    of.torch.export(network.eval(), (x[:2],), file, dynamic_shapes=shapes, input_names=["x"], output_names=["y"])
    report = of.compile(file, folder / "digits.bin")
    print(f"compiled: {report.source_nodes} nodes -> {report.program_nodes}: {report.operators}")
    (got,) = of.Session(folder / "digits.bin").run({"x": x[split:].numpy()}).values()
    with torch.no_grad():
        theirs = network(x[split:]).numpy()
    # The last bit of a sum decides now and then which of two neighbours a hidden unit is rounded to.
    figures["same"] = float((got.argmax(axis=1) == theirs.argmax(axis=1)).mean())
    figures["error"] = float(np.abs(got - theirs).mean())
    print(f"the .bin of {network.bits} bits against PyTorch: mean |error| {figures['error']:.1e}, "
          f"{figures['same']:.1%} the same digits")  # fmt: skip
    return figures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = main(Path(scratch))
    sys.exit(0 if figures["8 bits"] > 0.9 and figures["error"] < 1e-3 else 1)
