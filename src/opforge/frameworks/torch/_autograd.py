"""Autograd of the stable route: a Python kernel at the Autograd key that executes the operator's gradient program.

It is a plain autograd function below the dispatcher, not a ``torch.library.register_autograd`` rule, because such a
rule fails under ``torch.func.grad``: it goes through the Python side of functorch, which wants a ``setup_context``.
Here the transform's own level has been entered already, exactly as for PyTorch's own operators, so one function
serves eager, compiled and functorch calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch._functorch.utils import enable_single_level_autograd_function

from opforge.errors import InternalError, UnsupportedError
from opforge.schema import ForwardAttribute, GradientProgram, Operand, Required

if TYPE_CHECKING:
    from opforge.frameworks.torch._entries import Entry

__all__ = ["no_forward_mode", "not_differentiable", "register"]


def register(entry: Entry, library: torch.library.Library) -> None:
    """Register the autograd kernel."""
    library.impl(entry.name, _make_kernel(entry), "Autograd", with_keyset=True)


def not_differentiable(where: str) -> UnsupportedError:
    """Make the error of a backward pass through an operator without a gradient."""
    return UnsupportedError(
        "the operator is not differentiable",
        where=where,
        expected="a gradient program",
        got="none is declared",
        hint="declare the operator with gradient=, or detach the input",
    )


def no_forward_mode(where: str) -> UnsupportedError:
    """Make the error of forward-mode differentiation."""
    return UnsupportedError(
        "forward-mode differentiation (jvp) is not implemented",
        where=where,
        hint="use reverse mode: torch.func.grad, vjp, jacrev",
    )


@dataclass
class _State:
    """What a node keeps besides saved tensors."""

    keyset: Any
    attributes: dict[str, Any]
    counts: tuple[int, ...]  # tensors per input parameter, absent ones not counted
    read: tuple[tuple[str, int], ...] = ()  # what each saved tensor is: ("i" | "o", parameter), variadics in a row
    shapes: tuple[Any, ...] = ()  # of the inputs, flat
    outputs: tuple[Any, ...] = ()  # (shape, dtype, device) of the outputs, flat; None = absent
    output_counts: tuple[int, ...] = ()


def _make_kernel(entry: Entry) -> Callable[..., Any]:
    overload, plain = entry.overload, entry.plain
    below: Any = torch._C._AutoDispatchBelowAutograd
    after = torch._C._after_autograd_keyset
    any_requires_grad = torch._C._any_requires_grad
    n_inputs = len(entry.signature.inputs)
    defaults = {a.name: a.default for a in entry.signature.attributes if not isinstance(a.default, Required)}
    function = _make_function(entry)
    # Function.apply would enter functorch from the top; this is the function's own, one level down.
    apply = super(torch.autograd.Function, function).apply
    active = torch._C._are_functorch_transforms_active

    def kernel(keyset: Any, *arguments: Any, **attributes: Any) -> Any:  # noqa: ANN401
        if forward_ad._current_level >= 0:
            _refuse_tangents(entry, arguments)
        if not (torch.is_grad_enabled() and any_requires_grad(*arguments)):
            with below():
                return overload.redispatch(keyset & after, *arguments, **attributes)
        if defaults:
            attributes = {**defaults, **attributes}
        if plain:
            state = _State(keyset, attributes, (1,) * n_inputs)
            flat: Sequence[Any] = arguments
        else:
            padded = [*arguments, *(None for _ in range(n_inputs - len(arguments)))]
            groups = [list(a) if isinstance(a, list | tuple) else [] if a is None else [a] for a in padded]
            state = _State(keyset, attributes, tuple(len(group) for group in groups))
            flat = [tensor for group in groups for tensor in group]
        if active():
            with enable_single_level_autograd_function():
                results = apply(state, *flat)
        else:
            results = apply(state, *flat)
        return results if plain else _regroup(entry, state.output_counts, results)

    return kernel


def _refuse_tangents(entry: Entry, arguments: Sequence[Any]) -> None:
    for argument in arguments:
        for tensor in argument if isinstance(argument, list | tuple) else (argument,):
            if isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None:
                raise no_forward_mode(entry.where)


def _regroup(entry: Entry, counts: Sequence[int], results: Any) -> Any:  # noqa: ANN401
    """Bring flat outputs back into one value per output parameter."""
    flat = iter(results if isinstance(results, tuple) else (results,))
    outputs: list[Any] = []
    for parameter, count in zip(entry.signature.outputs, counts, strict=True):
        taken = [next(flat) for _ in range(count)]
        outputs.append(taken if parameter.variadic else taken[0] if taken else None)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _flatten(values: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    groups = [list(v) if isinstance(v, list | tuple) else [] if v is None else [v] for v in values]
    return [tensor for group in groups for tensor in group], tuple(len(group) for group in groups)


def _make_function(entry: Entry) -> type[torch.autograd.Function]:
    overload, plain = entry.overload, entry.plain
    single = len(entry.signature.outputs) == 1
    n_outputs = len(entry.signature.outputs)
    after = torch._C._after_autograd_keyset
    below: Any = torch._C._AutoDispatchBelowAutograd
    active = torch._C._are_functorch_transforms_active
    pruned: dict[tuple[bool, ...], GradientProgram] = {}

    def program_for(wanted: tuple[bool, ...]) -> GradientProgram:
        assert entry.gradient is not None
        if wanted not in pruned:
            pruned[wanted] = entry.gradient.prune(wanted)
        return pruned[wanted]

    def forward(ctx: Any, state: _State, *flat: Any) -> Any:  # noqa: ANN401
        arguments = flat if plain else _arguments(entry, state.counts, flat)
        # The function has switched recording off, which would reach the levels of functorch below this one.
        with below(), torch.enable_grad() if active() else contextlib.nullcontext():
            outputs = overload.redispatch(state.keyset & after, *arguments, **state.attributes)
        values = (outputs,) if single else outputs
        if plain:
            results: Sequence[Any] = values
            state.output_counts = (1,) * n_outputs
        else:
            results, state.output_counts = _flatten(values)
        state.keyset = None
        ctx.state = state
        ctx.set_materialize_grads(False)
        if entry.gradient is not None:
            program = program_for(_per_parameter(state.counts, ctx.needs_input_grad[1:]))
            _save(ctx, state, program, flat, results)
        return outputs if plain and single else tuple(results)

    def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ANN401
        state: _State = ctx.state
        if entry.gradient is None:
            raise not_differentiable(entry.where)
        needs = ctx.needs_input_grad[1:]
        if all(grad is None for grad in grads):
            return (None,) * (1 + len(needs))
        program = program_for(_per_parameter(state.counts, needs))
        return (None, *_execute(entry, program, state, ctx.saved_tensors, grads, needs))

    name = f"{entry.where.rpartition(':')[2]}Backward"
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward), "__module__": __name__}
    return type(name, (torch.autograd.Function,), body)


def _arguments(entry: Entry, counts: Sequence[int], flat: Sequence[Any]) -> list[Any]:
    """Bring flat tensors back into one value per input parameter."""
    values = iter(flat)
    arguments: list[Any] = []
    for parameter, count in zip(entry.signature.inputs, counts, strict=True):
        taken = [next(values) for _ in range(count)]
        arguments.append(taken if parameter.variadic else taken[0] if taken else None)
    return arguments


def _per_parameter(counts: Sequence[int], needs: Sequence[bool]) -> tuple[bool, ...]:
    if len(counts) == len(needs) and all(count == 1 for count in counts):
        return tuple(needs)
    wanted: list[bool] = []
    start = 0
    for count in counts:
        wanted.append(any(needs[start : start + count]))
        start += count
    return tuple(wanted)


def _save(ctx: Any, state: _State, program: GradientProgram, flat: Sequence[Any], results: Sequence[Any]) -> None:  # noqa: ANN401
    """Save exactly the tensors that the pruned program reads."""
    kept: list[Any] = []
    read: list[tuple[str, int]] = []
    for kind, counts, values in (("i", state.counts, flat), ("o", state.output_counts, results)):
        wanted = program.reads(kind)
        start = 0
        for parameter, count in enumerate(counts):
            if parameter in wanted:
                kept.extend(values[start : start + count])
                read.extend([(kind, parameter)] * count)
            start += count
    ctx.save_for_backward(*kept)
    state.read = tuple(read)
    state.shapes = tuple(tensor.shape for tensor in flat)
    state.outputs = tuple((tensor.shape, tensor.dtype, tensor.device) for tensor in results)


def _execute(
    entry: Entry, program: GradientProgram, state: _State, saved: Sequence[Any], grads: Sequence[Any], needs: Sequence[bool]
) -> list[Any]:
    """Run the program; give one gradient per flat input."""
    from opforge.frameworks.torch._entries import entry_of

    values: dict[tuple[str, int], list[Any]] = {}
    for key, tensor in zip(state.read, saved, strict=True):
        values.setdefault(key, []).append(tensor)

    start = 0
    for parameter, count in enumerate(state.output_counts):
        values["g", parameter] = [
            torch.zeros(shape, dtype=dtype, device=device) if grad is None else grad
            for grad, (shape, dtype, device) in zip(grads[start : start + count], state.outputs[start : start + count], strict=True)
        ] if parameter in program.reads("g") else []  # fmt: skip
        start += count

    def value_of(operand: Operand, variadic: bool) -> Any:  # noqa: ANN401
        found = values.get((operand.kind, operand.index), [])
        return found if variadic else found[0] if found else None

    for step in program.steps:
        target = entry_of(step.key)
        operands = [
            value_of(operand, parameter.variadic)
            for operand, parameter in zip(step.operands, target.signature.inputs, strict=True)
        ]
        attributes = {
            name: state.attributes[value.name] if isinstance(value, ForwardAttribute) else value
            for name, value in step.attributes
        }
        outputs = target.overload(*operands, **attributes)
        single = len(target.signature.outputs) == 1
        for index, output in zip(step.results, (outputs,) if single else outputs, strict=True):
            values["v", index] = list(output) if isinstance(output, list | tuple) else [] if output is None else [output]

    gradients: list[Any] = []
    for parameter, count in enumerate(state.counts):
        found = values.get((program.results[parameter].kind, program.results[parameter].index), [])
        gradients.extend(found if len(found) == count else [None] * count)
    for index, gradient in enumerate(gradients):
        if not needs[index]:
            gradients[index] = None
        elif gradient is not None and tuple(gradient.shape) != tuple(state.shapes[index]):
            raise InternalError(
                "the gradient program gives a wrong shape",
                where=f"{entry.where}, gradient of input tensor {index}",
                expected=list(state.shapes[index]),
                got=list(gradient.shape),
                hint="correct gradient= of the operator",
            )
    return gradients
