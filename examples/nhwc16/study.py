"""A layout of a device inside of an operator: trained, exported, compiled, and shown by what inspects a file.

Digits of 8 x 8 pixels become four channels of 4 x 4, which two convolutions of one pixel read in NHWC with the channels
filled up to 16. The network knows nothing of that; the files do.

Run: python -m examples.nhwc16.study
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits

import opforge as of
from examples.nhwc16.op import pixel_conv16, to_nhwc16
from opforge.bin.format import read


class Network(torch.nn.Module):
    """4 channels, 20 units at every pixel, 10 digits of all pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Parameter(torch.randn(20, 4) / 2)
        self.second = torch.nn.Parameter(torch.randn(20, 20) / 4)
        self.out = torch.nn.Linear(20 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(pixel_conv16(x, self.first, layout="nhwc16"))
        return self.out(torch.relu(pixel_conv16(x, self.second, layout="nhwc16")).flatten(1))


def main(folder: Path, steps: int = 150) -> dict[str, float]:
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    images = torch.tensor(pixels[order].reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
    x, digit = torch.nn.functional.pixel_unshuffle(images, 2).contiguous(), torch.tensor(digits[order])
    split = len(digit) * 3 // 4
    network = Network()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(x[:split]), digit[:split]).backward()
        optimiser.step()
    with torch.no_grad():
        theirs = network(x[split:])
    figures = {"accuracy": float((theirs.argmax(dim=1) == digit[split:]).float().mean())}
    print(f"{figures['accuracy']:.1%} of unseen digits; 4 channels are read as {to_nhwc16(x.numpy()).shape[3]}")

    file = folder / "digits.onnx"
    shapes = {"x": {0: torch.export.Dim("N")}}
    of.torch.export(network.eval(), (x[:2],), file, dynamic_shapes=shapes, input_names=["x"], output_names=["y"])
    of.compile(file, folder / "digits.bin")
    kept = {
        "ONNX": [a.s.decode() for n in onnx.load(file).graph.node for a in n.attribute if a.name == "layout"],
        ".bin": [
            n.attributes["layout"]
            for graph in read(folder / "digits.bin").program.graphs
            for n in graph.nodes
            if n.op == "PixelConv16"
        ],
    }
    for place, layouts in kept.items():
        figures[place] = layouts.count("nhwc16")
        print(f"layouts in the {place} file: {layouts}")
    (ours,) = of.Session(folder / "digits.bin").run({"x": x[split:].numpy()}).values()
    figures["error"] = float(np.abs(ours - theirs.numpy()).max())
    print(f"the .bin against PyTorch: max |error| {figures['error']:.1e}")
    return figures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = main(Path(scratch))
    sys.exit(0 if figures["accuracy"] > 0.9 and figures["error"] < 1e-4 else 1)
