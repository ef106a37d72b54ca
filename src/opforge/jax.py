"""JAX: what a user reaches as ``opforge.jax``.

Operators take JAX arrays by themselves. ``register(op)`` makes one known ahead of a first call, which functions saved
by ``jax.export`` need; ``disabled_checks()`` is what ``jax.export.export`` wants to be told about our custom call.
"""

from __future__ import annotations

from typing import Any

from opforge.frameworks.jax import TARGET, function, register, register_library

__all__ = ["TARGET", "disabled_checks", "function", "register", "register_library"]


def disabled_checks() -> list[Any]:
    """Return ``disabled_checks`` for ``jax.export.export``: the artefact holds calls that XLA itself does not know.

    A process that calls the artefact must have registered the operators first.
    """
    from jax import export

    return [export.DisabledSafetyCheck.custom_call(TARGET)]
