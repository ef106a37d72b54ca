"""CustomGELU as a classic TensorFlow operation (REGISTER_OP): what a user would write without opforge."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "build" / "bench" / "classic"

SOURCE = r"""
#include <cmath>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

using namespace tensorflow;

REGISTER_OP("BenchGelu").Input("x: T").Output("y: T").Attr("T: {float, double}")
    .SetShapeFn(shape_inference::UnchangedShape);
REGISTER_OP("BenchGeluGrad").Input("grad: T").Input("x: T").Output("y: T").Attr("T: {float, double}")
    .SetShapeFn(shape_inference::UnchangedShape);

template <class T>
struct Gelu : OpKernel {
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const T* a = x.flat<T>().data();
    T* b = y->flat<T>().data();
    for (int64_t i = 0; i < x.NumElements(); ++i) {
      const T u = T(0.7978845608028654) * (a[i] + T(0.044715) * a[i] * a[i] * a[i]);
      b[i] = T(0.5) * a[i] * (T(1) + std::tanh(u));
    }
  }
};

template <class T>
struct GeluGrad : OpKernel {
  using OpKernel::OpKernel;
  void Compute(OpKernelContext* context) override {
    const Tensor& grad = context->input(0);
    const Tensor& x = context->input(1);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, x.shape(), &y));
    const T* g = grad.flat<T>().data();
    const T* a = x.flat<T>().data();
    T* b = y->flat<T>().data();
    for (int64_t i = 0; i < x.NumElements(); ++i) {
      const T c = T(0.7978845608028654), k = T(0.044715);
      const T t = std::tanh(c * (a[i] + k * a[i] * a[i] * a[i]));
      const T s = c * (T(1) + T(3) * k * a[i] * a[i]);
      b[i] = g[i] * (T(0.5) * (T(1) + t) + T(0.5) * a[i] * (T(1) - t * t) * s);
    }
  }
};

#define BENCH_KERNELS(T)                                                                                  \
  REGISTER_KERNEL_BUILDER(Name("BenchGelu").Device(DEVICE_CPU).TypeConstraint<T>("T"), Gelu<T>);         \
  REGISTER_KERNEL_BUILDER(Name("BenchGeluGrad").Device(DEVICE_CPU).TypeConstraint<T>("T"), GeluGrad<T>);
BENCH_KERNELS(float)
BENCH_KERNELS(double)
"""


def compile_library(path: Path) -> float:
    """Compile the operation against the installed TensorFlow; return the seconds that it took."""
    import tensorflow as tf

    from opforge.build.toolchain import find_compiler

    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".cc")
    source.write_text(SOURCE, encoding="utf-8")
    compiler = find_compiler()
    flags = ["-shared", "-fPIC", "-O3", "-w", *(["-march=native"] if compiler.native else [])]
    files = [str(source), "-o", str(path)]
    started = time.perf_counter()
    subprocess.run(
        [*compiler.command, *flags, *tf.sysconfig.get_compile_flags(), *files, *tf.sysconfig.get_link_flags()],
        check=True,
    )
    return time.perf_counter() - started


def load() -> Any:  # noqa: ANN401 - a function that TensorFlow generates
    """Compile it (or take what was compiled) and return the operation, differentiable."""
    import tensorflow as tf

    name = hashlib.sha256(f"{tf.__version__}\n{SOURCE}".encode()).hexdigest()[:16]
    path = FOLDER / f"gelu-{name}.so"
    if not path.exists():
        compile_library(path)
    library = tf.load_op_library(str(path))

    @tf.RegisterGradient("BenchGelu")
    def gradient(op: Any, grad: Any) -> Any:  # noqa: ANN401 - an operation and a tensor
        return library.bench_gelu_grad(grad, op.inputs[0])

    return library.bench_gelu
