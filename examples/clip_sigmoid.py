"""A formula operator from declaration to .bin: a sigmoid that is clipped to [lo, hi].

Run: python -m examples.clip_sigmoid
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import opforge as of


@of.formula("examples.learn::ClipSigmoid")
def clip_sigmoid(x, *, lo: float = 0.1, hi: float = 0.9):
    """A sigmoid clipped to [lo, hi]; the derivative is 0 where the clip is active."""
    return of.clip(of.sigmoid(x), lo, hi)


class Gate(torch.nn.Module):
    """The operator in a module, as any function of torch."""

    def forward(self, x):
        return clip_sigmoid(x, lo=0.2)


def main(folder: Path) -> dict[str, float]:
    x = np.linspace(-4, 4, 9, dtype=np.float32)
    print("x             ", x)
    print("NumPy         ", clip_sigmoid(x))

    leaf = torch.from_numpy(x.copy()).requires_grad_()
    y = clip_sigmoid(leaf)
    y.sum().backward()
    print("torch         ", y.detach().numpy())
    print("its gradient  ", leaf.grad.numpy(), "(0 where the clip is active)")

    report = of.check(clip_sigmoid, level="quick")
    print(report.summary())

    # dynamo=True needs a batch of at least 2 to keep the dimension symbolic.
    of.torch.export(Gate(), (torch.zeros(2, 9),), folder / "gate.onnx", dynamic_shapes=({0: "N"},), input_names=["x"])
    of.compile(folder / "gate.onnx", folder / "gate.bin")
    session = of.Session(folder / "gate.bin")
    (output,) = session.run({"x": x[None]}).values()
    difference = float(np.abs(output[0] - clip_sigmoid(x, lo=0.2)).max())
    print("from the .bin ", output[0], f"(differs by {difference:g} from NumPy)")

    comparison = of.compare(folder / "gate.onnx", {"x": x[None]}, rtol=1e-6, atol=1e-6)
    print("ONNX Runtime runs the same model through the function body:", "agrees" if comparison else "DIFFERS")
    return {
        "checks": float(report.passed),
        "difference": difference,
        "agrees": float(comparison.passed),
        "clipped gradients": float((leaf.grad == 0).sum()),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = main(Path(scratch))
    sys.exit(0 if figures["checks"] and figures["agrees"] else 1)
