"""The hosts that checks run in: NumPy always, and each framework of `opforge.frameworks` that is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from importlib import import_module, util
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from opforge import frameworks
from opforge.build import LoadedLibrary, abi, load_library
from opforge.build.plan import plan_library
from opforge.codegen import has_kernels, kernel_sources
from opforge.cuda import emulate_operators
from opforge.errors import ArgumentError, OpforgeError
from opforge.frameworks import numpy_host
from opforge.schema import Operator, registry
from opforge.schema.registry import nearest
from opforge.verify._executed import executed
from opforge.verify.gradients import backward, require_shapes

__all__ = ["EMULATED", "Host", "emulated_host", "emulated_operators", "hosts", "known_hosts"]

EMULATED = "cuda-emulated"
"""Name of the host whose kernels are CUDA's, run on the CPU."""

P = ParamSpec("P")
R = TypeVar("R")
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
        names: which, in this order; by default NumPy and every installed framework. "cuda-emulated" is for those
            who name it: CUDA kernels on the CPU.

    Raises:
        ArgumentError: there is no such host, or its framework is not installed.
    """
    known = known_hosts()
    if names is None:
        return [_host(name) for name in known if name != EMULATED and util.find_spec(name) is not None]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else None
            raise ArgumentError(
                "there is no such host", where="check", expected=f"one of {', '.join(known)}", got=name, hint=hint
            )
        if name != EMULATED and util.find_spec(name) is None:
            raise ArgumentError(f"{name} is not installed", where="check", hint=f"pip install 'opforge[{name}]'")
    return [_host(name) for name in dict.fromkeys(names)]


def known_hosts() -> list[str]:
    """Return the names of all hosts, installed or not."""
    folder = Path(str(frameworks.__file__)).parent
    return ["numpy", *sorted(p.parent.name for p in folder.glob("*/_arrays.py")), EMULATED]


def _host(name: str) -> Host:
    if name == "numpy":
        return Host(name, _numpy_compute, _numpy_gradients)
    if name == EMULATED:
        return emulated_host()
    module = import_module(f"opforge.frameworks.{name}._arrays")
    return Host(
        name,
        _own_errors(module.compute),
        _own_errors(module.gradients),
        getattr(module, "refuses", Host.refuses),
        module.MODES,
        _own_errors(module.watch),
        _own_errors(module.second_gradients),
    )


def _own_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Raise an error of ours as it is where a framework's tracer hands it on wrapped in one of its own."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except OpforgeError:
            raise
        except Exception as problem:
            cause: BaseException | None = problem
            while cause is not None and not isinstance(cause, OpforgeError):
                cause = cause.__cause__ or cause.__context__
            if cause is None:
                raise
            raise cause from None

    return called


def emulated_host() -> Host:
    """Return the host that computes with CUDA kernels, run on the CPU by the emulator."""

    def compute(
        operator: Operator, arrays: Sequence[Array | None], attributes: Mapping[str, Any], mode: str = "eager"
    ) -> list[Array]:
        given = operator.arrange(arrays, {})
        library = _emulated_library(operator.key)
        result = numpy_host.call(operator, given, attributes, library=library, device=abi.DEVICE_CUDA)
        return list(result) if isinstance(result, tuple) else [result]

    def gradients(
        operator: Operator,
        arrays: Sequence[Array | None],
        grads: Sequence[Array],
        attributes: Mapping[str, Any],
        mode: str = "eager",
    ) -> list[Array | None]:
        found, _ = executed(operator, arrays, compute(operator, arrays, attributes), grads, attributes, compute)
        require_shapes(operator, found, arrays)
        return found

    def refuses(operator: Operator) -> str | None:
        return None if has_kernels(operator, "cuda") else _NO_CUDA

    return Host(EMULATED, compute, gradients, refuses)


_NO_CUDA = "it has no CUDA kernels: name a source for them, sources=[..., 'cuda.cu']"


def emulated_operators(operator: Operator) -> list[Operator]:
    """Return the operators of one emulated library: it, its gradient's, and those that share its CUDA sources."""
    formulas = [one for one in operator.derived if one.is_formula]
    if operator.is_formula:
        return [operator, *formulas]
    shared = kernel_sources(operator, "cuda")
    others = [one for one in plan_library([operator]).operators if not one.is_formula and has_kernels(one, "cuda")]
    return [operator, *formulas, *(o for o in others if o is not operator and kernel_sources(o, "cuda") == shared)]


_families: dict[str, str] = {}


def _emulated_library(key: str) -> LoadedLibrary:
    """The library that holds an operator: that of the operator whose gradient it is, where that one came before."""
    operator = registry.get(*_parts(key))
    for member in emulated_operators(operator):
        _families.setdefault(member.key, key)
    return _loaded(_families[key])


@cache
def _loaded(key: str) -> LoadedLibrary:
    return load_library(emulate_operators(emulated_operators(registry.get(*_parts(key)))).path)


def _parts(key: str) -> tuple[str, str, int]:
    domain, _, rest = key.partition("::")
    name, _, version = rest.rpartition(":")
    return domain, name, int(version)
