"""What the benchmark needs compiled, made while the tests run: torch's accelerator, and an operator of load_inline."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from tools.device_check.clock import rehearsing
from tools.device_check.machine import found_tool, torch_reason

__all__ = ["INLINE", "accelerator_ready", "load_inline_operator"]

INLINE: Final = "load_inline"

SOURCE: Final = r"""
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>
#include <torch/library.h>

namespace {

__global__ void gelu_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const float a = x[i], u = 0.7978845608028654f * (a + 0.044715f * a * a * a);
  y[i] = 0.5f * a * (1.0f + tanhf(u));
}

at::Tensor gelu(const at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor input = x.contiguous();
  at::Tensor out = at::empty_like(input);
  const int64_t n = input.numel();
  if (n > 0) {
    gelu_kernel<<<static_cast<unsigned>((n + 255) / 256), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  return out;
}

}  // namespace

TORCH_LIBRARY(opforge_bench_inline, m) { m.def("gelu(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(opforge_bench_inline, CUDA, m) { m.impl("gelu", gelu); }
"""


def load_inline_operator(*, build: bool = True) -> Any:  # noqa: ANN401 - an OpOverloadPacket
    """Return a GELU that a user would write for load_inline.

    Args:
        build: compile it where it has not been; otherwise that is an error.

    Raises:
        RuntimeError: it cannot be compiled here, or has not been.
    """
    import torch

    if rehearsing():
        raise RuntimeError("a rehearsal has no CUDA operators")
    if found_tool("nvcc") is None:
        raise RuntimeError("there is no nvcc")
    folder = Path(os.environ["OPFORGE_DEVICE_WORK"]) / "inline"
    library = folder / "opforge_bench_inline.so"
    if not library.is_file():
        if not build:
            raise RuntimeError("it has not been compiled in time")
        from torch.utils.cpp_extension import load_inline

        folder.mkdir(parents=True, exist_ok=True)
        load_inline(
            name="opforge_bench_inline",
            cpp_sources=["// everything is in the other"],
            cuda_sources=[SOURCE],
            build_directory=str(folder),
            is_python_module=False,
            extra_cuda_cflags=["-O3"],
            verbose=False,
            no_implicit_headers=True,  # no torch/extension.h, which needs Python's headers
        )
    else:
        torch.ops.load_library(str(library))
    return torch.ops.opforge_bench_inline.gelu.default


def accelerator_ready() -> str:
    """Return why torch's accelerator is not there, "" where it is."""
    from opforge.frameworks.torch import _accelerator

    return "" if _accelerator.built() is not None else _accelerator.failure() or "not built"


def main() -> int:
    """Compile both; neither is needed, so that the exit code is 0 where one cannot be."""
    reason = "" if rehearsing() else torch_reason()
    if reason:
        print(f"nothing is compiled: {reason}")
        return 0
    steps = {"load_inline": load_inline_operator, "accelerator": _accelerator}
    for name, step in steps.items():
        try:
            step()
            print(f"{name}: ready", flush=True)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    return 0


def _accelerator() -> None:
    if not rehearsing():
        from opforge.frameworks.torch._accelerator import build

        build()


if __name__ == "__main__":
    sys.exit(main())
