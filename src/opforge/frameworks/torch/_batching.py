"""vmap: one call with broadcasting for formula operators, one call per slice for kernel operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from opforge.schema import Broadcast, Rest

if TYPE_CHECKING:
    from opforge.frameworks.torch._entries import Entry

__all__ = ["register"]


def register(entry: Entry, library: Any) -> None:  # noqa: ANN401 - a torch.library.Library
    """Register the batching rule."""
    rule = _broadcasting(entry) if _is_elementwise(entry) else _sequential(entry)
    torch.library.register_vmap(entry.torch_name, rule, lib=library)


def _is_elementwise(entry: Entry) -> bool:
    """Whether each input is a run ``*S`` of its own, so that dimensions of size 1 may be put in front."""
    inputs = entry.signature.inputs
    runs = [p.dims[0].name for p in inputs if len(p.dims) == 1 and isinstance(p.dims[0], Rest)]
    return (
        entry.is_formula
        and entry.plain
        and len(set(runs)) == len(inputs)
        and all(len(p.dims) == 1 and isinstance(p.dims[0], Rest | Broadcast) for p in entry.signature.outputs)
    )


def _broadcasting(entry: Entry) -> Callable[..., Any]:
    names = [p.dims[0].name if isinstance(p.dims[0], Rest) else "" for p in entry.signature.inputs]
    summed = [isinstance(p.dims[0], Rest) for p in entry.signature.outputs]

    def rule(info: Any, in_dims: Sequence[Any], *tensors: torch.Tensor, **attributes: Any) -> Any:  # noqa: ANN401
        ranks = [t.dim() - (d is not None) for t, d in zip(tensors, in_dims, strict=True)]
        rank = max(ranks)
        prepared: list[torch.Tensor] = []
        for tensor, dim, own in zip(tensors, in_dims, ranks, strict=True):
            # An output of an input's own shape is summed to that shape, so the input must have the batch dimension.
            if dim is None and not any(summed):
                prepared.append(tensor)
                continue
            front = tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            prepared.append(front.reshape(front.shape[0], *(1,) * (rank - own), *front.shape[1:]))
        results = entry.overload(*prepared, **attributes)
        outputs: list[torch.Tensor] = []
        for result, parameter in zip((results,) if len(summed) == 1 else results, entry.signature.outputs, strict=True):
            dims = parameter.dims[0]
            own = ranks[names.index(dims.name)] if isinstance(dims, Rest) else _rank(dims, names, ranks)
            outputs.append(result.reshape(result.shape[0], *result.shape[1 + rank - own :]))
        return (outputs[0], 0) if len(summed) == 1 else (tuple(outputs), (0,) * len(outputs))

    return rule


def _rank(dims: Any, names: Sequence[str], ranks: Sequence[int]) -> int:  # noqa: ANN401 - a Broadcast
    return max(ranks[names.index(name)] for name in dims.names)


def _sequential(entry: Entry) -> Callable[..., Any]:
    def pick(value: Any, dim: Any, index: int) -> Any:  # noqa: ANN401
        if isinstance(value, list | tuple):
            dims = dim if isinstance(dim, list | tuple) else [dim] * len(value)
            return [pick(item, d, index) for item, d in zip(value, dims, strict=True)]
        return value if dim is None or value is None else value.select(dim, index)

    def stack(results: list[Any]) -> Any:  # noqa: ANN401
        if isinstance(results[0], list | tuple):
            return [stack(list(items)) for items in zip(*results, strict=True)]
        return None if results[0] is None else torch.stack(results)

    def rule(info: Any, in_dims: Sequence[Any], *arguments: Any, **attributes: Any) -> Any:  # noqa: ANN401
        # Without any slice the shapes still come from one: that of zeros of the slice's shape.
        rows = range(info.batch_size) if info.batch_size else [0]
        if not info.batch_size:
            arguments = tuple(_one_row(value, dim) for value, dim in zip(arguments, in_dims, strict=True))
        results = [
            entry.overload(*(pick(v, d, row) for v, d in zip(arguments, in_dims, strict=True)), **attributes)
            for row in rows
        ]
        stacked = stack(results)
        if not info.batch_size:
            stacked = _no_rows(stacked)
        if isinstance(results[0], tuple):
            return tuple(stacked), tuple(_out_dims(item) for item in stacked)
        return stacked, _out_dims(stacked)

    return rule


def _one_row(value: Any, dim: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list | tuple):
        dims = dim if isinstance(dim, list | tuple) else [dim] * len(value)
        return [_one_row(item, d) for item, d in zip(value, dims, strict=True)]
    if dim is None or value is None:
        return value
    shape = list(value.shape)
    shape[dim] = 1
    return value.new_zeros(shape)


def _no_rows(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, list | tuple):
        return [_no_rows(item) for item in value]
    return None if value is None else value[:0]


def _out_dims(value: Any) -> Any:  # noqa: ANN401
    return [_out_dims(item) for item in value] if isinstance(value, list) else None if value is None else 0
