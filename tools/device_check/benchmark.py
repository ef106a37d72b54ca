"""The benchmark of the device check: ``python -m tools.device_check.benchmark PART...``.

Every row is written as soon as it is measured, to ``bench_PART.jsonl``. Values are compared before times are taken. A
participant that fails is a row with the reason; a part fails only where opforge itself does.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools.device_check.clock import Clock, open_clock, rehearsing, summary
from tools.device_check.prepare import INLINE, accelerator_ready, load_inline_operator

OURS: Final = "opforge"
_ROUNDS: Final = 21
_DTYPES: Final = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_TOLERANCE: Final = {"f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}
_KIB: Final = 1024
_SIZES: Final = (1 * _KIB, 16 * _KIB, 256 * _KIB, 4096 * _KIB, 65536 * _KIB, 262144 * _KIB)
_COMPILED: Final = (4096 * _KIB, 262144 * _KIB)
"""Bytes at which inductor takes part: it compiles once per size."""


class Report:
    """Rows of one part, written line by line."""

    def __init__(self, name: str) -> None:
        """Begin the part's file."""
        self.part = name
        self.failed = False
        path = Path(os.environ["OPFORGE_DEVICE_WORK"]) / f"bench_{name}.jsonl"
        self._file = path.open("w", encoding="utf-8")

    def row(self, case: str, participant: str, **values: Any) -> None:  # noqa: ANN401 - plain data
        """Write one row."""
        content = {"part": self.part, "case": case, "participant": participant, **values}
        self._file.write(json.dumps(content) + "\n")
        self._file.flush()
        seconds = values.get("seconds")
        shown = f"{seconds * 1e6:.2f} us" if seconds is not None else values.get("left_out")
        print(case, participant, shown, flush=True)

    def left_out(self, case: str, participant: str, error: BaseException) -> None:
        """Say that a participant could not be measured; for opforge that is a failure."""
        traceback.print_exc()
        words = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        self.row(case, participant, left_out=words)
        self.failed |= participant == OURS

    def times(
        self,
        clock: Clock,
        case: str,
        makers: Mapping[str, Callable[[], Callable[[], Any]]],
        agree: Callable[[Any], None],
        rounds: int = _ROUNDS,
        **facts: Any,  # noqa: ANN401 - plain data
    ) -> None:
        """Make each participant, hold its result against what is right, then time all of them in turn."""
        runs = self._usable(case, makers, agree)
        if runs:
            clock.times(runs, 2)
            for name, values in clock.times(runs, 3 if rehearsing() else rounds).items():
                self.row(case, name, **summary(values), **facts)

    def _usable(
        self, case: str, makers: Mapping[str, Callable[[], Callable[[], Any]]], agree: Callable[[Any], None]
    ) -> dict[str, Callable[[], Any]]:
        runs = {}
        for name, make in makers.items():
            try:
                run = make()
                agree(run())
                runs[name] = run
            except Exception as error:
                self.left_out(case, name, error)
        return runs

    def calls(
        self,
        clock: Clock,
        case: str,
        makers: Mapping[str, Callable[[], Callable[[], Any]]],
        agree: Callable[[Any], None],
        count: int,
    ) -> None:
        """The same for what the host needs to call."""
        runs = self._usable(case, makers, agree)
        if runs:
            clock.calls(runs, 2, count)
            for name, values in clock.calls(runs, 3 if rehearsing() else 15, count).items():
                self.row(case, name, **summary(values), host=True)


def main() -> int:
    """Run the parts that are named."""
    import torch
    import torch._functorch.config

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch._functorch.config.donated_buffer = False  # what inductor compiled is run backward many times
    if rehearsing():
        torch.set_num_threads(1)
    reports = []
    for name in sys.argv[1:]:
        reports.append(Report(name))
        _PARTS[name](reports[-1], open_clock())
    return 1 if any(report.failed for report in reports) else 0


def ceilings(report: Report, clock: Clock) -> None:
    """The copy bandwidth and the matrix rates that the rest is held against, and the machine as torch sees it."""
    import torch

    if clock.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        report.row("machine", "torch", version=torch.__version__, cuda=torch.version.cuda, device=properties.name,
                   left_out="no times here")  # fmt: skip
    size = (1 << 16) if rehearsing() else (256 << 20)
    source = torch.randn(size // 4, device=clock.device)
    target = torch.empty_like(source)
    makers = {"torch copy": lambda: lambda: target.copy_(source)}
    report.times(clock, "copy", makers, lambda got: torch.testing.assert_close(got, source), bytes=2 * size, flops=0)
    n = 64 if rehearsing() else 4096
    for label, dtype in _DTYPES.items():
        a, b = (torch.randn(n, n, device=clock.device).to(getattr(torch, dtype)) for _ in range(2))
        right = (a[:1].double() @ b.double()).float()

        def agree(got: Any, right: Any = right) -> None:  # noqa: ANN401 - a tensor
            torch.testing.assert_close(got[:1].float(), right, rtol=2e-2, atol=1.0)

        report.times(clock, f"matmul {label}", {"torch.mm": partial(_bound, torch.mm, a, b)}, agree,
                     bytes=3 * n * n * a.element_size(), flops=2 * n**3)  # fmt: skip


def _bound(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:  # noqa: ANN401 - tensors
    return partial(function, *arguments)


def _formulas() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Name -> operator, and torch's own function of the same values."""
    from torch.nn import functional

    import opforge.torch  # noqa: F401
    from opforge import ops

    gelu = partial(functional.gelu, approximate="tanh")
    known: dict[str, tuple[Any, Callable[[Any], Any]]] = {"gelu": (ops.custom_gelu, gelu)}
    if not rehearsing():
        known |= {"swish": (ops.swish, functional.silu), "mish": (ops.mish, functional.mish)}
    return known


def _flops(operator: Any) -> int:  # noqa: ANN401 - an operator
    from opforge.codegen.cpp import program_of

    return len(program_of(operator).instructions)


def _sizes() -> tuple[int, ...]:
    return (1 * _KIB, 4 * _KIB) if rehearsing() else _SIZES


def elementwise(report: Report, clock: Clock) -> None:
    """Forward: every size and dtype for GELU, the largest size for the others; the largest comes first."""
    import torch

    for name, (operator, peer) in _formulas().items():
        sizes = sorted(_sizes(), reverse=True) if name == "gelu" else [max(_sizes())]
        for size in sizes:
            for label, dtype in _DTYPES.items():
                x = torch.randn(size // (4 if label == "f32" else 2), device=clock.device)
                x = (x * 2).to(getattr(torch, dtype))
                right = peer(x.double()) if x.numel() < 1 << 22 else peer(x[: 1 << 20].double())

                def agree(got: Any, right: Any = right, label: str = label) -> None:  # noqa: ANN401 - a tensor
                    part = got[: right.numel()].double()
                    torch.testing.assert_close(part, right, rtol=_TOLERANCE[label], atol=_TOLERANCE[label])

                makers: dict[str, Callable[[], Callable[[], Any]]] = {
                    OURS: partial(_bound, operator, x),
                    "torch eager": partial(_bound, peer, x),
                }
                if size in _COMPILED:
                    makers["torch inductor"] = partial(_compiled, peer, x)
                with torch.no_grad():
                    report.times(clock, f"{name} {_text(size)} {label}", makers, agree, bytes=2 * size,
                                 flops=_flops(operator) * x.numel(), dtype=label)  # fmt: skip


def _compiled(function: Callable[[Any], Any], x: Any) -> Callable[[], Any]:  # noqa: ANN401 - a tensor
    import torch

    torch._dynamo.reset()  # sizes would make it compile for any size, which is slower
    return _bound(torch.compile(function, dynamic=False), x)


def gradients(report: Report, clock: Clock) -> None:
    """Backward alone, through autograd."""
    import torch

    for name, (operator, peer) in _formulas().items():
        for size in (max(_sizes()), *([] if name != "gelu" or rehearsing() else [65536 * _KIB])):
            for label, dtype in _DTYPES.items():
                kind = getattr(torch, dtype)
                x = torch.randn(size // (4 if label == "f32" else 2), device=clock.device).mul_(2).to(kind)
                x.requires_grad_()
                seed = torch.randn_like(x)
                part = x.detach()[: 1 << 16].double().requires_grad_()
                (right,) = torch.autograd.grad(peer(part), part, seed[: 1 << 16].double())

                def agree(got: Any, right: Any = right, label: str = label) -> None:  # noqa: ANN401 - a tensor
                    limit = 4 * _TOLERANCE[label]
                    torch.testing.assert_close(got[: right.numel()].double(), right, rtol=limit, atol=limit)

                makers: dict[str, Callable[[], Callable[[], Any]]] = {
                    OURS: partial(_backward, operator, x, seed),
                    "torch eager": partial(_backward, peer, x, seed),
                }
                if not rehearsing():
                    makers["torch inductor"] = partial(_backward_compiled, peer, x, seed)
                gradient = operator.gradient_operator
                report.times(clock, f"{name} gradient {_text(size)} {label}", makers, agree, bytes=3 * size,
                             flops=_flops(gradient) * x.numel(), dtype=label)  # fmt: skip


def _backward(function: Callable[[Any], Any], x: Any, seed: Any) -> Callable[[], Any]:  # noqa: ANN401 - tensors
    import torch

    y = function(x)
    return lambda: torch.autograd.grad(y, x, seed, retain_graph=True)[0]


def _backward_compiled(function: Callable[[Any], Any], x: Any, seed: Any) -> Callable[[], Any]:  # noqa: ANN401
    import torch

    torch._dynamo.reset()
    return _backward(torch.compile(function, dynamic=False), x, seed)


def sparse(report: Report, clock: Clock) -> None:
    """SparseMatMul 1024x1024 (95 % zeros) @ 1024x512, and its gradients, against dense products and cuSPARSE."""
    import torch

    import opforge.torch  # noqa: F401
    from opforge.ops import sparse_matmul, sparse_matmul_grad_dense, sparse_matmul_grad_values

    m, k, n = (64, 64, 32) if rehearsing() else (1024, 1024, 512)
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(m, k, generator=generator) * (torch.rand(m, k, generator=generator) < 0.05)
    for label in ("f32", "f16", "bf16"):
        kind = getattr(torch, _DTYPES[label])
        matrix = whole.to(kind)
        csr = matrix.to_sparse_csr()
        values, indices, indptr = (t.to(clock.device) for t in (csr.values(), csr.col_indices(), csr.crow_indices()))
        dense = torch.randn(k, n, generator=generator).to(kind).to(clock.device)
        grad = torch.randn(m, n, generator=generator).to(kind).to(clock.device)
        a = matrix.to(clock.device)
        nnz, width = values.numel(), values.element_size()
        moved = nnz * (width + 8) + (m + 1) * 8 + (k * n + m * n) * width
        facts = {"bytes": moved, "flops": 2 * nnz * n, "dtype": label}

        def agree(got: Any, right: Any, label: str = label) -> None:  # noqa: ANN401 - tensors
            limit = 8 * _TOLERANCE[label]
            torch.testing.assert_close(got.double(), right, rtol=limit, atol=limit * max(1.0, float(right.abs().max())))

        def narrow(v: Any, i: Any, p: Any, d: Any) -> Callable[[], Any]:  # noqa: ANN401 - tensors
            return _bound(sparse_matmul, v, i.int(), p.int(), d)

        makers: dict[str, Callable[[], Callable[[], Any]]] = {
            OURS: partial(_bound, sparse_matmul, values, indices, indptr, dense),
            "opforge, 32-bit indices": partial(narrow, values, indices, indptr, dense),
            "torch.mm (cuBLAS)": partial(_bound, torch.mm, a, dense),
            "torch CSR (cuSPARSE)": partial(_csr_product, values, indices, indptr, dense, (m, k)),
        }
        with torch.no_grad():
            report.times(clock, f"sparse matmul {label}", makers,
                         partial(agree, right=a.double() @ dense.double()), **facts)  # fmt: skip
            like = torch.empty(k, n, device=clock.device, dtype=kind)
            makers = {
                OURS: partial(_bound, sparse_matmul_grad_dense, values, indices, indptr, grad, like),
                "torch.mm (cuBLAS)": lambda a=a, grad=grad: _bound(torch.mm, a.t(), grad),
            }
            report.times(clock, f"sparse matmul gradient of dense {label}", makers,
                         partial(agree, right=a.double().t() @ grad.double()), **facts)  # fmt: skip
            rows = torch.repeat_interleave(torch.arange(m, device=clock.device), indptr.diff())
            picked = (grad.double() @ dense.double().t())[rows, indices]
            makers = {OURS: partial(_bound, sparse_matmul_grad_values, indices, indptr, grad, dense)}
            report.times(clock, f"sparse matmul gradient of values {label}", makers,
                         partial(agree, right=picked), **facts)  # fmt: skip


def _csr_product(values: Any, indices: Any, indptr: Any, dense: Any, shape: tuple[int, int]) -> Callable[[], Any]:  # noqa: ANN401
    import torch

    matrix = torch.sparse_csr_tensor(indptr, indices, values, shape, check_invariants=False)
    return lambda: matrix @ dense


def launch(report: Report, clock: Clock) -> None:
    """What a call costs the host on 1 KiB: opforge, torch.sigmoid, torch's GELU, a CUDA operator of load_inline."""
    import torch
    from torch.nn import functional

    import opforge.torch
    from opforge.ops import custom_gelu

    x = torch.randn(256, device=clock.device)
    gelu = partial(functional.gelu, approximate="tanh")
    right = gelu(x.double())

    def agree(got: Any) -> None:  # noqa: ANN401 - a tensor
        if got.shape == x.shape and not torch.equal(got, torch.sigmoid(x)):
            torch.testing.assert_close(got.double(), right, rtol=1e-5, atol=1e-5)

    makers: dict[str, Callable[[], Callable[[], Any]]] = {
        OURS: partial(_bound, custom_gelu, x),
        "torch eager": partial(_bound, gelu, x),
        "torch.sigmoid": partial(_bound, torch.sigmoid, x),
        INLINE: lambda: _bound(load_inline_operator(build=False), x),
    }
    with torch.no_grad():
        report.calls(clock, "call 1 KiB f32", makers, agree, 5 if rehearsing() else 500)
        report.times(clock, "kernel 1 KiB f32", makers, agree, bytes=2048, flops=0, dtype="f32")
    report.row("route", OURS, left_out=f"{opforge.torch.route()}; accelerator: {accelerator_ready() or 'built'}")


_PARTS: Final[dict[str, Callable[[Report, Clock], None]]] = {
    "ceilings": ceilings,
    "elementwise": elementwise,
    "gradients": gradients,
    "sparse": sparse,
    "launch": launch,
}


def _text(size: int) -> str:
    return f"{size // _KIB} KiB" if size < 1 << 20 else f"{size >> 20} MiB"


if __name__ == "__main__":
    sys.exit(main())
