"""Operators inside ExecuTorch: the cost of one more node, and of the smallest call, beside ExecuTorch's own gelu."""

from __future__ import annotations

from typing import Any

from benchmarks._case import OURS, Case, Prepared

CHAIN = 100
MICROSECONDS = 0.2
"""What one more node may cost."""
GELU = "gelu of executorch"


def _sessions(folder: str) -> dict[str, tuple[Any, Any]]:
    """Programs of one node and of a chain of 101 on one element: ours, and the same with PyTorch's operator."""
    import torch

    import opforge as of
    import opforge.executorch
    from opforge.ops import custom_gelu

    class Chain(torch.nn.Module):
        def __init__(self, length: int, function: Any) -> None:  # noqa: ANN401
            super().__init__()
            self.length, self.function = length, function

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(self.length):
                x = self.function(x)
            return x

    def own(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh")

    x, made = torch.tensor([0.7]), {}
    for name, function in ((OURS, custom_gelu), (GELU, own)):
        pair = []
        for length in (1, CHAIN + 1):
            path = f"{folder}/{len(made)}-{length}.pte"
            of.executorch.lower(Chain(length, function), (x,), path)
            pair.append(of.executorch.session(path, threads=1))
        made[name] = (pair[0], pair[1])
    for one, many in made.values():
        torch.testing.assert_close(one.execute([x])[0], own(x))
        torch.testing.assert_close(many.execute([x])[0], made[GELU][1].execute([x])[0])
    return made


def _calls(_threads: int) -> dict[str, Prepared]:
    """Microseconds of a call of one node, and of one node more: a chain of 101 less one node, by 100."""
    import statistics
    import tempfile
    import time

    import torch

    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
        sessions = _sessions(folder)
    x = [torch.tensor([0.7])]
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in sessions}
    for _ in range(400):  # short blocks: most of them end before the system takes the processor away
        for name, pair in sessions.items():
            for session, taken in zip(pair, times[name], strict=True):
                run = session.method.execute
                started = time.perf_counter()
                for _ in range(10):
                    run(x)
                taken.append((time.perf_counter() - started) / 10)
    one = {name: statistics.median(short) * 1e6 for name, (short, _) in times.items()}
    more = {name: (statistics.median(many) * 1e6 - one[name]) / CHAIN for name, (_, many) in times.items()}
    return {
        "one more node": Prepared(values=more | {f"{MICROSECONDS} us": MICROSECONDS}),
        "smallest call": Prepared(values=one),
    }


CASES = [
    Case(
        "executorch",
        _calls,
        {f"one more node/{MICROSECONDS} us": 1.0},
        metric="microseconds",
        needs=("executorch",),
    )
]
