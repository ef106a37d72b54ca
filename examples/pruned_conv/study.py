"""Dynamic convolution after channel pruning: digits with a quarter of the channels, and what that is worth.

A network learns a gate for each channel between its convolutions, and is drawn towards closed gates. The channels with
the widest gates stay; which these are is an input of the convolution from then on. It is trained a little further, is
exported with the operator under its own domain, compiled, compared with PyTorch, and timed against the dense network.

Run: python -m examples.pruned_conv.study
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

import opforge as of
from examples.pruned_conv.op import channel_gather

CHANNELS, KEPT, BATCH = 64, 16, 64
PRESSURE = 2e-3
"""What an open gate costs while training."""


class Network(torch.nn.Module):
    """Two convolutions with gates between, means of four by four pixels, ten digits; `kept` None reads all."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(1, CHANNELS, 3, padding=1)
        self.gate = torch.nn.Parameter(torch.ones(1, CHANNELS, 1, 1))
        self.second = torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.out = torch.nn.Linear(4 * CHANNELS, 10)

    def forward(self, x: torch.Tensor, kept: torch.Tensor | None = None) -> torch.Tensor:
        x = torch.relu(self.first(x)) * self.gate
        weight = self.second.weight
        if kept is not None:
            x, weight = channel_gather(x, kept), channel_gather(weight, kept)
        x = torch.relu(torch.nn.functional.conv2d(x, weight, self.second.bias, padding=1))
        return self.out(torch.nn.functional.avg_pool2d(x, 4).flatten(1))


class Pruned(torch.nn.Module):
    """The network with its channels fixed: what is exported for a device that never changes them."""

    def __init__(self, network: Network, kept: torch.Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("kept", kept)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x, self.kept)


def train(
    network: Network, x: torch.Tensor, digit: torch.Tensor, steps: int, kept: torch.Tensor | None, pressure: float
) -> None:
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
    for step in range(steps):
        begin = step * BATCH % (len(x) - BATCH + 1)
        some = slice(begin, begin + BATCH)
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x[some], kept), digit[some])
        (loss + pressure * network.gate.abs().sum()).backward()
        optimiser.step()


def accuracy(network: Network, x: torch.Tensor, digit: torch.Tensor, kept: torch.Tensor | None) -> float:
    with torch.no_grad():
        return float((network(x, kept).argmax(dim=1) == digit).float().mean())


def save(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], names: list[str], file: Path) -> of.CompileReport:
    """Export a module with any number of images, and compile it."""
    shapes = {"x": {0: torch.export.Dim("N")}, **{name: {0: torch.export.Dim("K")} for name in names[1:]}}
    of.torch.export(module.eval(), inputs, file, dynamic_shapes=shapes, input_names=names, output_names=["y"])
    return of.compile(file, file.with_suffix(".bin"))


def times(sessions: dict[str, of.Session], x: np.ndarray, rounds: int = 30) -> dict[str, float]:
    """Time the sessions in turn; the median of each in ms."""
    found: dict[str, list[float]] = {name: [] for name in sessions}
    for _ in range(rounds):
        for name, session in sessions.items():
            began = time.perf_counter()
            session.run({"x": x})
            found[name].append((time.perf_counter() - began) * 1e3)
    return {name: float(np.median(values)) for name, values in found.items()}


def main(folder: Path, steps: int = 200, rounds: int = 30) -> dict[str, float]:
    torch.manual_seed(0)
    pixels, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digits))
    x = torch.tensor(pixels[order].reshape(-1, 1, 8, 8) / 16, dtype=torch.float32)
    digit = torch.tensor(digits[order])
    split = len(digit) * 3 // 4
    network = Network()
    train(network, x[:split], digit[:split], steps, None, PRESSURE)
    figures = {"dense": accuracy(network, x[split:], digit[split:], None)}
    width = network.gate.detach().abs().flatten() * network.second.weight.detach().abs().sum(dim=(0, 2, 3))
    kept = width.topk(KEPT).indices.sort().values
    figures["pruned"] = accuracy(network, x[split:], digit[split:], kept)
    dense = save(network, (x[:2],), ["x"], folder / "dense.onnx")
    train(network, x[:split], digit[:split], steps // 2, kept, 0.0)
    figures["trained"] = accuracy(network, x[split:], digit[split:], kept)
    print(
        f"{CHANNELS} channels: {figures['dense']:.1%} of unseen digits; the {KEPT} with the widest gates: "
        f"{figures['pruned']:.1%}; trained further: {figures['trained']:.1%}"
    )

    fixed = save(Pruned(network, kept), (x[:2],), ["x"], folder / "pruned.onnx")
    save(network, (x[:2], kept), ["x", "kept"], folder / "dynamic.onnx")
    figures["smaller"] = dense.weight_bytes / fixed.weight_bytes
    print(f"compiled: weights {dense.weight_bytes} -> {fixed.weight_bytes} bytes; {fixed.operators}")
    images = x[split:].numpy()
    with torch.no_grad():
        theirs = network(x[split:], kept).numpy()
        few = network(x[split:], kept[::2]).numpy()
    chosen = of.Session(folder / "dynamic.bin")
    (ours,) = of.Session(folder / "pruned.bin").run({"x": images}).values()
    (same,) = chosen.run({"x": images, "kept": kept.numpy()}).values()
    (half,) = chosen.run({"x": images, "kept": kept[::2].numpy()}).values()
    figures["error"] = float(np.abs(ours - theirs).max())
    figures["chosen"] = float(max(np.abs(same - theirs).max(), np.abs(half - few).max()))
    print(f"against PyTorch: max |error| {figures['error']:.1e}; channels chosen at run time: {figures['chosen']:.1e}")
    sessions = {name: of.Session(folder / f"{name}.bin", threads=1) for name in ("dense", "pruned")}
    found = times(sessions, images, rounds)
    figures["faster"] = found["dense"] / found["pruned"]
    print(
        f"{len(images)} images on one thread: dense {found['dense']:.2f} ms, pruned {found['pruned']:.2f} ms, "
        f"{figures['faster']:.2f} times as fast"
    )
    return figures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = main(Path(scratch))
    sys.exit(0 if figures["trained"] > 0.9 and figures["error"] < 1e-4 else 1)
