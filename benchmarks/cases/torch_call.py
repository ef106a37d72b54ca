"""What one call costs in PyTorch: a tensor of one element, against a hand-written C++ operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._case import OURS, Case, Prepared
from benchmarks.cases import _load_inline

EXTENSION = Path(__file__).resolve().parents[2] / "build" / "bench" / "inline"


def _prepare(mode: str, route: str, threads: int) -> Prepared:
    import os

    os.environ["OPFORGE_TORCH_ROUTE"] = route
    import torch

    torch.set_num_threads(threads)
    import opforge.torch
    from opforge.ops import custom_gelu

    if route == "accelerator":
        opforge.torch.build_accelerator()
    inline = _load_inline.build(EXTENSION)
    custom_gelu(torch.ones(1))
    ours = torch.ops.com_example.custom_gelu
    x = torch.full((1,), 0.5)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    results = [op(leaf) for op, leaf in zip((ours, inline), leaves, strict=True)]
    gradients = [torch.autograd.grad(y, leaf)[0] for y, leaf in zip(results, leaves, strict=True)]
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(gradients[0], gradients[1])
    return Prepared(runs={OURS: _mode(mode, ours, x), "load_inline": _mode(mode, inline, x)})


def _mode(mode: str, op: Callable[..., Any], x: Any) -> Callable[[], Any]:  # noqa: ANN401
    import torch

    if mode == "no_grad":

        def plain() -> None:
            with torch.no_grad():
                op(x)

        return plain
    leaf = x.clone().requires_grad_()
    if mode == "forward":
        return lambda: op(leaf)

    def both() -> None:
        leaf.grad = None
        op(leaf).backward()

    return both


_LIMITS = {"no_grad": 1.0, "forward": 1.0, "forward+backward": 1 / 1.1}
CASES = [
    Case(
        f"torch call/{mode}, {route}",
        partial(_prepare, mode, route),
        {"load_inline": limit if route == "accelerator" else limit / 3},
        needs=("torch", "ninja", "setuptools"),
    )
    for route in ("accelerator", "stable")
    for mode, limit in _LIMITS.items()
]
