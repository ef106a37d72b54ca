"""Trains each lesson in PyTorch, TensorFlow and JAX from the same weights, compares, and draws the loss curves.

Run: python -m examples.lessons [PICTURE.png]
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np

from examples.lessons.digits import LESSONS, Result, load

FRAMEWORKS = {"PyTorch": "in_pytorch", "TensorFlow": "in_tensorflow", "JAX": "in_jax"}
Results = dict[str, dict[str, Result]]
"""What training gave, by lesson and framework."""


def train(epochs: int = 20, dtype: str = "float32", titles: Sequence[str] = tuple(LESSONS)) -> Results:
    """Every lesson in every framework, from the same starting weights."""
    digits = load(dtype)
    results: Results = {}
    for title in titles:
        lesson = LESSONS[title]
        results[title] = {}
        for name, module in FRAMEWORKS.items():
            trained = import_module(f"examples.lessons.{module}").train(lesson, digits, lesson.start(dtype), epochs)
            results[title][name] = trained
            ranges = ", ".join(
                f"{key} {trained.weights[key].min():+.3f} to {trained.weights[key].max():+.3f}"
                for key in lesson.learned
            )
            print(
                f"{title:11s} {name:10s} loss {trained.losses[0]:.4f} -> {trained.losses[-1]:.4f}, "
                f"accuracy {100 * trained.accuracy:.1f} %, learned {ranges}"
            )
        print(f"{title:11s} learned parameters differ between frameworks by {difference(title, results[title]):.1e}")
    return results


def difference(title: str, results: dict[str, Result]) -> float:
    """The largest difference between frameworks of what was learned through the operator."""
    first, *others = results.values()
    return max(
        float(np.abs(first.weights[key] - other.weights[key]).max())
        for other in others
        for key in LESSONS[title].learned
    )


def draw(results: Results, path: Path) -> None:
    """Draw one panel per lesson with a curve per framework; they lie on each other, so each is drawn thinner."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(5 * len(results), 4), layout="constrained")
    panels = figure.subplots(1, len(results), sharey=True)
    for panel, (title, by_name) in zip(panels, results.items(), strict=True):
        for (name, result), width, style in zip(by_name.items(), (7, 3.5, 1.5), ("-", "-", "--"), strict=True):
            label = f"{name}, {100 * result.accuracy:.1f} % right"
            panel.plot(range(1, len(result.losses) + 1), result.losses, style, linewidth=width, label=label)
        panel.set(title=f"{title} on handwritten digits", xlabel="epoch", yscale="log")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("")
        panel.grid(alpha=0.3)
        panel.legend()
    panels[0].set_ylabel("training loss (cross-entropy)")
    figure.savefig(path, dpi=120)


def main(path: Path, epochs: int = 20) -> bool:
    results = train(epochs)
    draw(results, path)
    print(f"loss curves: {path}")
    return all(
        result.accuracy > 0.93 and difference(title, by_name) < 1e-2
        for title, by_name in results.items()
        for result in by_name.values()
    )


if __name__ == "__main__":
    sys.exit(0 if main(Path(sys.argv[1] if len(sys.argv) > 1 else "lessons.png")) else 1)
