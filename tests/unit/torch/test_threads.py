"""Kernels run on PyTorch's own threads, as many as PyTorch is set to."""

import pytest
import torch

import opforge as of
from opforge.schema import unregister

SOURCE = """
#include <chrono>
#include <thread>

#include "opforge/kernel.h"

// Each element says which thread wrote it; the sleep lets the other threads get some.
template <class T>
opforge::Status who(opforge::Context& context, opforge::View<const T, 1> x, opforge::View<T, 1> y) {
  context.parallel_for(x.shape(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      y(k) = T(std::hash<std::thread::id>{}(std::this_thread::get_id()) % 1000003);
    }
  });
  return opforge::kOk;
}
"""


@pytest.mark.compiler
def test_as_many_threads_as_pytorch_is_set_to(tmp_path):
    source = tmp_path / "who.cc"
    source.write_text(SOURCE)
    who = of.kernel(
        "test.threads::Who",
        "(x: T[n]) -> (y: T[n])",
        types={"T": [of.f64]},
        sources=[source],
        reference=None,
        deterministic=False,
    )
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            assert len(who(torch.zeros(16, dtype=torch.float64)).unique()) == threads
    finally:
        torch.set_num_threads(before)
        unregister(who)
