"""The hosts that checks run in: NumPy always, and each framework of `opforge.frameworks` that is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

from opforge import frameworks
from opforge.errors import ArgumentError
from opforge.schema import Operator
from opforge.schema.registry import nearest
from opforge.verify.gradients import backward

__all__ = ["Host", "hosts"]

Array = np.ndarray[Any, Any]
Compute = Callable[[Operator, Sequence[Array | None], Mapping[str, Any]], list[Array]]
Watch = Callable[[Operator, Sequence[Array | None], Mapping[str, Any]], Callable[[], None]]
Second = Callable[
    [Operator, Sequence[Array | None], Sequence[Array], Sequence[Array | None], Mapping[str, Any]], list[Array | None]
]
Gradients = Callable[[Operator, Sequence[Array | None], Sequence[Array], Mapping[str, Any]], list[Array | None]]


@dataclass(frozen=True)
class Host:
    """How to compute an operator and its gradients somewhere, on NumPy arrays."""

    name: str
    compute: Compute
    gradients: Gradients
    refuses: Callable[[Operator], str | None] = lambda operator: None
    """Why the host cannot have the operator at all; None where it can."""
    modes: tuple[str, ...] = ("eager",)
    """How the host can call an operator; `compute` and `gradients` do it in the first way."""
    watch: Watch | None = None
    """Gives a call that records the operator for a backward pass, where the host records at all."""
    second: Second | None = None
    """Differentiates the sum of weights (one per input) times the first gradients."""

    def in_mode(self, mode: str) -> Host:
        """Return the host calling in another of its modes."""
        name = self.name if mode == self.modes[0] else f"{self.name} {mode}"
        compute = partial(self.compute, mode=mode)  # type: ignore[call-arg]
        return replace(self, name=name, compute=compute, gradients=partial(self.gradients, mode=mode))  # type: ignore[call-arg]


def _numpy_compute(operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[Array]:
    result = operator(*arrays, **attributes)
    return [np.asarray(v) for v in (result if isinstance(result, tuple | list) else [result])]


def _numpy_gradients(
    operator: Operator, arrays: Sequence[Array | None], grads: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Array | None]:
    return backward(operator, arrays, _numpy_compute(operator, arrays, attributes), grads, attributes)


def hosts(names: Sequence[str] | None = None) -> list[Host]:
    """Return hosts; a framework's folder offers compute and gradients in `_arrays`.

    Args:
        names: which, in this order; by default NumPy and every installed framework.

    Raises:
        ArgumentError: there is no such host, or its framework is not installed.
    """
    folder = Path(str(frameworks.__file__)).parent
    known = ["numpy", *sorted(p.parent.name for p in folder.glob("*/_arrays.py"))]
    if names is None:
        return [_host(name) for name in known if util.find_spec(name) is not None]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else None
            raise ArgumentError("there is no such host", where="check", expected=known, got=repr(name), hint=hint)
        if util.find_spec(name) is None:
            raise ArgumentError(f"{name} is not installed", where="check", hint=f"pip install 'opforge[{name}]'")
    return [_host(name) for name in dict.fromkeys(names)]


def _host(name: str) -> Host:
    if name == "numpy":
        return Host(name, _numpy_compute, _numpy_gradients)
    module = import_module(f"opforge.frameworks.{name}._arrays")
    return Host(
        name,
        module.compute,
        module.gradients,
        getattr(module, "refuses", Host.refuses),
        module.MODES,
        module.watch,
        module.second_gradients,
    )
