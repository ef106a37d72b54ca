"""The hosts that checks run in: NumPy always, and each framework of `opforge.frameworks` that is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np

from opforge import frameworks
from opforge.schema import Operator
from opforge.verify.gradients import backward

__all__ = ["Host", "hosts"]

Array = np.ndarray[Any, Any]
Compute = Callable[[Operator, Sequence[Array | None], Mapping[str, Any]], list[Array]]
Gradients = Callable[[Operator, Sequence[Array | None], Sequence[Array], Mapping[str, Any]], list[Array | None]]


@dataclass(frozen=True)
class Host:
    """How to compute an operator and its gradients somewhere, on NumPy arrays."""

    name: str
    compute: Compute
    gradients: Gradients


def _numpy_compute(operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[Array]:
    result = operator(*arrays, **attributes)
    return [np.asarray(v) for v in (result if isinstance(result, tuple | list) else [result])]


def _numpy_gradients(
    operator: Operator, arrays: Sequence[Array | None], grads: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Array | None]:
    return backward(operator, arrays, _numpy_compute(operator, arrays, attributes), grads, attributes)


def hosts() -> list[Host]:
    """Return NumPy and every installed framework; a framework's folder offers compute and gradients in `_arrays`."""
    found = [Host("numpy", _numpy_compute, _numpy_gradients)]
    folder = Path(str(frameworks.__file__)).parent
    for name in sorted(p.parent.name for p in folder.glob("*/_arrays.py")):
        if util.find_spec(name) is not None:
            module = import_module(f"opforge.frameworks.{name}._arrays")
            found.append(Host(name, module.compute, module.gradients))
    return found
