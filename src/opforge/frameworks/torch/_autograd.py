"""Autograd of the stable route: a Python kernel at the Autograd key that executes the operator's gradient program.

It is a plain autograd function below the dispatcher, not a ``torch.library.register_autograd`` rule, because such a
rule fails under ``torch.func.grad``: it goes through the Python side of functorch, which wants a ``setup_context``.
Here the transform's own level has been entered already, exactly as for PyTorch's own operators, so one function
serves eager, compiled and functorch calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.forward_ad
from torch._functorch.utils import enable_single_level_autograd_function

from opforge.errors import UnsupportedError
from opforge.frameworks._programs import Values, flattened, grouped, not_differentiable, run
from opforge.frameworks.torch._gradients import check_shapes, plans_of
from opforge.schema import Required

if TYPE_CHECKING:
    from opforge.frameworks.torch._entries import Entry

__all__ = ["register"]

_after: Any = torch._C._after_autograd_keyset
_below: Any = torch._C._AutoDispatchBelowAutograd
_forward_ad: Any = torch.autograd.forward_ad
_active = torch._C._are_functorch_transforms_active
_DEVICES: Any = {key: torch._C.DispatchKeySet(key) for key in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)}
_CPU, _CUDA = _DEVICES.values()
# Key sets below which our kernel comes at once, as nothing traces or transforms, and the key of its device.
_plain_keys: dict[int, Any] = {}


def _device_below(keyset: Any) -> Any:  # noqa: ANN401
    """Return the key of the kernel that is next below autograd, None where it is not ours; it is remembered."""
    below = (keyset & _after).remove(torch._C.DispatchKey.ADInplaceOrView)
    device = _DEVICES.get(below.highestPriorityTypeId())
    if device is not None:
        _plain_keys[keyset.raw_repr()] = device
    return device


def register(entry: Entry, library: Any) -> None:  # noqa: ANN401 - a torch.library.Library
    """Register the autograd kernel."""
    library.impl(entry.name, _make_kernel(entry), "Autograd", with_keyset=True)


def _make_kernel(entry: Entry) -> Callable[..., Any]:
    redispatch = entry.overload._handle.redispatch_boxed
    any_requires_grad = torch._C._any_requires_grad
    recording = torch.is_grad_enabled
    defaults = {a.name: a.default for a in entry.signature.attributes if not isinstance(a.default, Required)}
    function = _plain_function(entry) if entry.plain else _general_function(entry)
    # Function.apply would enter functorch from the top; this is the function's own, one level down.
    apply = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    plain = entry.plain

    def kernel(keyset: Any, *arguments: Any, **attributes: Any) -> Any:  # noqa: ANN401
        if _forward_ad._current_level >= 0:
            _refuse_tangents(entry, arguments)
        device = _plain_keys.get(keyset.raw_repr()) or _device_below(keyset)
        keyset = device or keyset & _after
        if not (recording() and any_requires_grad(*arguments)):
            if device:
                return redispatch(keyset, *arguments, **attributes)
            with _below():
                return redispatch(keyset, *arguments, **attributes)
        if defaults:
            attributes = {**defaults, **attributes}
        if plain:
            if device:
                return apply(keyset, attributes, *arguments)
            return _apply(apply, keyset, attributes, *arguments)
        call = _Call(entry, keyset, attributes, arguments)
        return call.regroup(_apply(apply, call, None, *call.flat))

    return kernel


def _apply(apply: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
    if _active():
        with enable_single_level_autograd_function():
            return apply(*arguments)
    return apply(*arguments)


def _redispatch(
    redispatch: Callable[..., Any],
    keyset: Any,  # noqa: ANN401
    arguments: Iterable[Any],
    attributes: dict[str, Any],
) -> Any:  # noqa: ANN401
    """Call the operator below autograd, inside an autograd function."""
    if _active():
        # The function has switched recording off, which would reach the levels of functorch below this one.
        with _below(), torch.enable_grad():
            return redispatch(keyset, *arguments, **attributes)
    with _below():
        return redispatch(keyset, *arguments, **attributes)


def _refuse_tangents(entry: Entry, arguments: Sequence[Any]) -> None:
    for argument in arguments:
        for tensor in argument if isinstance(argument, list | tuple) else (argument,):
            if isinstance(tensor, torch.Tensor) and _forward_ad.unpack_dual(tensor).tangent is not None:
                raise UnsupportedError(
                    "forward-mode differentiation (jvp) is not implemented",
                    where=entry.where,
                    hint="use reverse mode: torch.func.grad, vjp, jacrev",
                )


def _class(entry: Entry, forward: Callable[..., Any], backward: Callable[..., Any]) -> type[torch.autograd.Function]:
    name = entry.where.rpartition(":")[2]  # PyTorch calls its node <name>Backward
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward), "__module__": __name__}
    return type(name, (torch.autograd.Function,), body)


def _plain_function(entry: Entry) -> type[torch.autograd.Function]:
    """One tensor per input and output parameter: the common case, kept short."""
    redispatch = entry.overload._handle.redispatch_boxed
    plans = plans_of(entry)
    single = len(entry.signature.outputs) == 1

    def forward(ctx: Any, keyset: Any, attributes: dict[str, Any], *tensors: Any) -> Any:  # noqa: ANN401
        if keyset is _CPU or keyset is _CUDA:
            outputs = redispatch(keyset, *tensors, **attributes)
        else:
            outputs = _redispatch(redispatch, keyset, tensors, attributes)
        if plans is not None:
            plan = plans.made.get(ctx.needs_input_grad) or plans(ctx.needs_input_grad, 2)
            if plan.outputs:
                made = (outputs,) if single else outputs
                ctx.save_for_backward(*[tensors[k] for k in plan.inputs], *[made[k] for k in plan.outputs])
            else:
                ctx.save_for_backward(*[tensors[k] for k in plan.inputs])
            ctx.kept = plan, attributes, [tensor.shape for tensor in tensors]
        return outputs

    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ANN401
        if plans is None:
            raise not_differentiable(entry.where, "detach the input")
        recorded, attributes, shapes = ctx.kept
        plan = plans(ctx.needs_input_grad, 2)
        saved = ctx.saved_tensors
        n = len(recorded.inputs)
        values: Values = {("g", k): gradient for k, gradient in enumerate(gradients)}
        values.update(zip([("i", k) for k in recorded.inputs], saved, strict=False))
        if recorded.outputs:
            values.update(zip([("o", k) for k in recorded.outputs], saved[n:], strict=True))
        results = run(plan, values, attributes)
        check_shapes(entry, results, shapes)
        return None, None, *results

    return _class(entry, forward, backward)


@dataclass
class _Call:
    """One call with optional or variadic parameters: its tensors flat, and how many belong to each parameter."""

    entry: Entry
    keyset: Any
    attributes: dict[str, Any]
    arguments: Sequence[Any]

    def __post_init__(self) -> None:
        self.flat, self.counts = _flatten(
            [*self.arguments, *[None] * (len(self.entry.signature.inputs) - len(self.arguments))]
        )
        self.output_counts: list[int] = []

    def regroup(self, results: Any) -> Any:  # noqa: ANN401
        """Bring flat outputs back into one value per output parameter."""
        flat = results if isinstance(results, tuple) else (results,)
        outputs = grouped(self.entry.signature.outputs, self.output_counts, flat)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _flatten(values: Iterable[Any]) -> tuple[list[Any], list[int]]:
    groups = flattened(values)
    return [tensor for group in groups for tensor in group], [len(group) for group in groups]


def _per_parameter(counts: Sequence[int], needs: Sequence[bool]) -> tuple[bool, ...]:
    wanted: list[bool] = []
    start = 0
    for count in counts:
        wanted.append(any(needs[start : start + count]))
        start += count
    return tuple(wanted)


def _general_function(entry: Entry) -> type[torch.autograd.Function]:
    """Optional and variadic parameters: tensors travel flat."""
    redispatch = entry.overload._handle.redispatch_boxed
    plans = plans_of(entry)
    inputs, outputs = entry.signature.inputs, entry.signature.outputs

    def forward(ctx: Any, call: _Call, _: None, *flat: Any) -> Any:  # noqa: ANN401
        made = _redispatch(redispatch, call.keyset, grouped(inputs, call.counts, flat), call.attributes)
        results, call.output_counts = _flatten((made,) if len(outputs) == 1 else made)
        call.flat, call.arguments, call.keyset = [], (), None  # what must live is saved
        ctx.call = call
        if plans is not None:
            plan = plans(_per_parameter(call.counts, ctx.needs_input_grad[2:]))
            kept, ctx.saved_counts = _flatten(
                [
                    *(value for k, value in enumerate(grouped(inputs, call.counts, flat)) if k in plan.inputs),
                    *(
                        value
                        for k, value in enumerate(grouped(outputs, call.output_counts, results))
                        if k in plan.outputs
                    ),
                ]
            )
            ctx.save_for_backward(*kept)
            ctx.recorded = plan
            ctx.shapes = [tensor.shape for tensor in flat]
        return tuple(results)

    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ANN401
        if plans is None:
            raise not_differentiable(entry.where, "detach the input")
        call, recorded = ctx.call, ctx.recorded
        needs = ctx.needs_input_grad[2:]
        plan = plans(_per_parameter(call.counts, needs))
        places = [*(("i", k) for k in recorded.inputs), *(("o", k) for k in recorded.outputs)]
        parameters = [*(inputs[k] for k in recorded.inputs), *(outputs[k] for k in recorded.outputs)]
        values: Values = dict(zip(places, grouped(parameters, ctx.saved_counts, ctx.saved_tensors), strict=True))
        values.update((("g", k), g) for k, g in enumerate(grouped(outputs, call.output_counts, gradients)))
        results: list[Any] = []
        for found, count in zip(run(plan, values, call.attributes), call.counts, strict=True):
            group = list(found) if isinstance(found, list | tuple) else [found]
            results += group if len(group) == count else [None] * count
        results = [result if need else None for result, need in zip(results, needs, strict=True)]
        check_shapes(entry, results, ctx.shapes, call.counts)
        return None, None, *results

    return _class(entry, forward, backward)
