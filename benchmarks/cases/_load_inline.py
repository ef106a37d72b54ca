"""CustomGELU written by hand for torch.utils.cpp_extension.load_inline: what a user would write without opforge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SOURCE = r"""
#include <torch/extension.h>
#include <cmath>

static at::Tensor forward_cpu(const at::Tensor& x) {
  auto input = x.contiguous();
  auto out = at::empty_like(input);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "gelu", [&] {
    auto* a = input.data_ptr<scalar_t>();
    auto* b = out.data_ptr<scalar_t>();
    at::parallel_for(0, input.numel(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        scalar_t u = scalar_t(0.7978845608028654) * (a[i] + scalar_t(0.044715) * a[i] * a[i] * a[i]);
        b[i] = scalar_t(0.5) * a[i] * (scalar_t(1) + std::tanh(u));
      }
    });
  });
  return out;
}

static at::Tensor backward_cpu(const at::Tensor& grad, const at::Tensor& x) {
  auto g = grad.contiguous();
  auto input = x.contiguous();
  auto out = at::empty_like(input);
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "gelu_backward", [&] {
    auto* a = input.data_ptr<scalar_t>();
    auto* d = g.data_ptr<scalar_t>();
    auto* b = out.data_ptr<scalar_t>();
    at::parallel_for(0, input.numel(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        scalar_t c = scalar_t(0.7978845608028654), k = scalar_t(0.044715);
        scalar_t t = std::tanh(c * (a[i] + k * a[i] * a[i] * a[i]));
        scalar_t s = c * (scalar_t(1) + scalar_t(3) * k * a[i] * a[i]);
        b[i] = d[i] * (scalar_t(0.5) * (scalar_t(1) + t) + scalar_t(0.5) * a[i] * (scalar_t(1) - t * t) * s);
      }
    });
  });
  return out;
}

struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x});
    static auto op = c10::Dispatcher::singleton()
                         .findSchemaOrThrow("bench_inline::gelu", "")
                         .typed<at::Tensor(const at::Tensor&)>();
    return op.call(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    return {backward_cpu(grads[0], context->get_saved_variables()[0])};
  }
};

static at::Tensor autograd(const at::Tensor& x) { return Gelu::apply(x); }

TORCH_LIBRARY(bench_inline, m) { m.def("gelu(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(bench_inline, CPU, m) { m.impl("gelu", forward_cpu); }
TORCH_LIBRARY_IMPL(bench_inline, Autograd, m) { m.impl("gelu", autograd); }
"""


def build(folder: Path) -> Any:  # noqa: ANN401 - an OpOverloadPacket
    """Compile (or take from ``folder``) and return ``torch.ops.bench_inline.gelu``."""
    import torch
    from torch.utils.cpp_extension import load_inline

    folder.mkdir(parents=True, exist_ok=True)
    load_inline(
        "bench_inline_gelu",
        SOURCE,
        build_directory=str(folder),
        is_python_module=False,
        extra_cflags=["-O3", "-march=native"],
        verbose=False,
    )
    return torch.ops.bench_inline.gelu
