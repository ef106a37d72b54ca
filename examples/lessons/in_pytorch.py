"""The lessons in PyTorch: a module that calls the operator, and PyTorch's own optimiser."""

import numpy as np
import torch

from examples.lessons.digits import MOMENTUM, RATE, Digits, Lesson, Result

__all__ = ["train"]


class Net(torch.nn.Module):
    def __init__(self, lesson: Lesson, start: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.lesson = lesson
        self.weights = torch.nn.ParameterDict({name: torch.tensor(value) for name, value in start.items()})

    def forward(self, x):
        w = self.weights
        hidden = self.lesson.operator(x @ w["inner"], *(w[name] for name in self.lesson.learned))
        return hidden @ w["outer"] + w["bias"]


def train(lesson: Lesson, digits: Digits, start: dict[str, np.ndarray], epochs: int) -> Result:
    net = Net(lesson, start)
    optimiser = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)
    x, y = torch.from_numpy(digits.x), torch.from_numpy(digits.y)
    losses = []
    for batches in digits.epochs(epochs):
        total = 0.0
        for batch in batches:
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x[batch]), y[batch])
            loss.backward()
            optimiser.step()
            total += loss.item()
        losses.append(total / len(batches))
    with torch.no_grad():
        found = net(torch.from_numpy(digits.test_x)).argmax(1).numpy()
    return Result(
        losses,
        float((found == digits.test_y).mean()),
        {name: value.detach().numpy() for name, value in net.weights.items()},
    )
