"""The PyTorch host: operators as ``torch.ops``, with autograd, functorch, autocast, compile and export.

Two routes lead into PyTorch, chosen once per process (``OPFORGE_TORCH_ROUTE``): the prebuilt adapter on PyTorch's
stable C ABI, and the accelerator, which is compiled once per PyTorch version and carries autograd in C++. Both serve
the same operators with the same semantics; ``route()`` says which one it is.
"""

from __future__ import annotations

from pathlib import Path

import torch

from opforge.frameworks.torch import _accelerator
from opforge.frameworks.torch._adapter import route
from opforge.frameworks.torch._calls import call, decomposed, publish, register, register_library, specialize
from opforge.frameworks.torch._entries import Entry, all_entries
from opforge.frameworks.torch._module import Module
from opforge.frameworks.torch._options import Options, options
from opforge.schema import registry

__all__ = [
    "Entry",
    "Module",
    "Options",
    "all_entries",
    "build_accelerator",
    "call",
    "decomposed",
    "name",
    "options",
    "register",
    "register_library",
    "route",
    "specialize",
    "version",
]

name = "torch"


def version() -> str:
    """Return PyTorch's version."""
    return str(torch.__version__)


def build_accelerator(*, force: bool = False) -> Path:
    """Build the C++ autograd adapter for the installed PyTorch; the next process takes it.

    Args:
        force: build even where an earlier attempt failed.
    """
    return _accelerator.build(force=force)


registry.subscribe(publish)
