"""Autocast of the stable route: the operator's declared rule, as a kernel at the autocast keys.

promote: floating inputs are cast to the widest dtype among them. f32: half inputs are cast to float32. lower: float32
inputs are cast to autocast's dtype. none: inputs stay as they are. Float64 inputs are left alone by f32 and lower, as
in PyTorch's own rules. The casts are recorded by autograd, so each gradient comes back in its input's own dtype.

The autocast that counts is that of the device on which the call runs: a number on the CPU beside CUDA tensors follows
theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from opforge.frameworks.torch._entries import Entry

__all__ = ["register"]


def register(entry: Entry, library: Any) -> None:  # noqa: ANN401 - a torch.library.Library
    """Register the autocast kernels, unless the rule is ``none``."""
    if entry.autocast != "none":
        for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
            library.impl(entry.name, _make_kernel(entry, device, key), key, with_keyset=True)


def _make_kernel(entry: Entry, device: str, key: str) -> Callable[..., Any]:
    rule, overload = entry.autocast, entry.overload
    without_autocast = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def kernel(keyset: Any, *arguments: Any, **attributes: Any) -> Any:  # noqa: ANN401
        target = _target(rule, arguments, device) if _runs_here(arguments, device) else None
        if target is not None:
            arguments = tuple(_cast(argument, target, rule) for argument in arguments)
        with torch._C._ExcludeDispatchKeyGuard(without_autocast):
            return overload(*arguments, **attributes)

    return kernel


def _runs_here(arguments: Any, device: str) -> bool:  # noqa: ANN401
    """Return whether the call runs on the device: on CUDA where any tensor lies there."""
    here = [tensor.device.type == device for tensor in _tensors(arguments)]
    return all(here) if device == "cpu" else any(here)


def _tensors(arguments: Any) -> list[torch.Tensor]:  # noqa: ANN401
    flat = [t for a in arguments for t in (a if isinstance(a, list | tuple) else (a,))]
    return [t for t in flat if isinstance(t, torch.Tensor)]


def _floating(arguments: Any) -> list[torch.Tensor]:  # noqa: ANN401
    return [tensor for tensor in _tensors(arguments) if tensor.is_floating_point()]


def _target(rule: str, arguments: Any, device: str) -> torch.dtype | None:  # noqa: ANN401
    if rule == "f32":
        return torch.float32
    if rule == "lower":
        return torch.get_autocast_dtype(device)
    target: torch.dtype | None = None
    for tensor in _floating(arguments):
        target = tensor.dtype if target is None else torch.promote_types(target, tensor.dtype)
    return target


def _cast(argument: Any, target: torch.dtype, rule: str) -> Any:  # noqa: ANN401
    if isinstance(argument, list | tuple):
        return [_cast(item, target, rule) for item in argument]
    if not isinstance(argument, torch.Tensor) or not argument.is_floating_point():
        return argument
    if rule != "promote" and argument.dtype == torch.float64:
        return argument
    return argument.to(target)
