"""Training through an operator: a sigmoid with a threshold for each feature, which is learned.

Generated measurements are passed through sigmoid(x - threshold) with thresholds that the model does not know; it
finds them by gradient descent through our operator, whose gradient is summed back to the threshold's shape.

Run: python -m examples.mod_sigmoid
"""

import sys

import torch

import opforge as of


@of.formula("examples.learn::ModSigmoid")
def mod_sigmoid(x, threshold):
    """Sigmoid of x - threshold; the two broadcast as in NumPy."""
    return of.sigmoid(x - threshold)


class Sensor(torch.nn.Module):
    """A threshold for each feature."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.threshold = torch.nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return mod_sigmoid(x, self.threshold)


def main(steps: int = 300) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.linspace(-1.5, 1.5, 8)
    x = torch.randn(512, 8, generator=generator) * 2
    target = torch.sigmoid(x - hidden) + 0.01 * torch.randn(512, 8, generator=generator)

    model = Sensor(8)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        if step % 100 == 0:
            print(f"step {step:4d}  loss {losses[-1]:.6f}")
    error = (model.threshold.detach() - hidden).abs().max().item()
    print(f"step {steps:4d}  loss {losses[-1]:.6f} (the noise alone is 0.0001)")
    print("hidden thresholds ", [round(v, 2) for v in hidden.tolist()])
    print("learned thresholds", [round(v, 2) for v in model.threshold.tolist()])

    # First and second derivatives against finite differences, at points of this problem.
    results = mod_sigmoid.grad_check(x[:4].double().numpy(), model.threshold.detach().double().numpy())
    worst = max(result.error for result in results)
    print(f"largest error of {len(results)} directional derivatives, first and second order: {worst:.1e}")
    return {"first": losses[0], "last": losses[-1], "error": error, "derivatives": worst}


if __name__ == "__main__":
    sys.exit(0 if main()["error"] < 0.02 else 1)
