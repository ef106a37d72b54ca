"""The JAX host: operators as custom calls of XLA, with jit, grad of any order, vmap and export.

One prebuilt adapter serves every operator and every jaxlib; it dispatches by the operator's name, which survives
``jax.export``.
"""

from __future__ import annotations

import jax

from opforge.frameworks.jax._adapter import TARGET
from opforge.frameworks.jax._calls import call, decomposed, function, register, register_library, specialize
from opforge.frameworks.jax._entries import Entry, all_entries

__all__ = [
    "TARGET",
    "Entry",
    "all_entries",
    "call",
    "decomposed",
    "function",
    "name",
    "register",
    "register_library",
    "specialize",
    "version",
]

name = "jax"


def version() -> str:
    """Return JAX's version."""
    return str(jax.__version__)
