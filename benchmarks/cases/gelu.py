"""CustomGELU on a million elements against torch's own GELU, eager and under inductor."""

from __future__ import annotations

from functools import partial

from benchmarks._case import OURS, Case, Prepared

N = 1 << 20


def _prepare(dtype: str, backward: bool, threads: int) -> Prepared:
    import torch

    torch.set_num_threads(threads)
    import opforge.torch  # noqa: F401
    from opforge.ops import custom_gelu

    x = (torch.randn(N, generator=torch.Generator().manual_seed(0)) * 3).to(getattr(torch, dtype))
    eager = partial(torch.nn.functional.gelu, approximate="tanh")
    inductor = torch.compile(eager)
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 4e-3}[dtype]
    for other in (eager, inductor):
        torch.testing.assert_close(custom_gelu(x), other(x), rtol=tolerance, atol=tolerance)
    if not backward:
        with torch.no_grad():
            inductor(x)
        return Prepared(
            runs={OURS: lambda: custom_gelu(x), "torch eager": lambda: eager(x), "torch inductor": lambda: inductor(x)}
        )
    leaf = x.clone().requires_grad_()
    seed = torch.ones_like(x)

    def both(function: object) -> None:
        leaf.grad = None
        function(leaf).backward(seed)  # type: ignore[operator]

    def gradient(function: object) -> torch.Tensor:
        both(function)
        return leaf.grad

    for other in (eager, inductor):
        torch.testing.assert_close(gradient(custom_gelu), gradient(other), rtol=tolerance, atol=tolerance)
    return Prepared(
        runs={
            OURS: lambda: both(custom_gelu),
            "torch eager": lambda: both(eager),
            "torch inductor": lambda: both(inductor),
        }
    )


def _avx512() -> bool:
    from pathlib import Path

    return "avx512f" in Path("/proc/cpuinfo").read_text()


_FORWARD = 2.5 if _avx512() else 2.0
CASES = [
    Case(
        f"gelu 1M/{dtype}",
        partial(_prepare, dtype, False),
        {"torch eager": limit, "torch inductor": limit},
        needs=("torch",),
    )
    for dtype, limit in (("float32", _FORWARD), ("bfloat16", 2.0), ("float16", 2.0))
] + [
    Case(
        "gelu 1M/float32 forward+backward",
        partial(_prepare, "float32", True),
        {"torch eager": 2.0, "torch inductor": 2.0},
        needs=("torch",),
    ),
    Case("gelu 1M/float32, 2 threads", partial(_prepare, "float32", False), {}, threads=2, needs=("torch",)),
]
