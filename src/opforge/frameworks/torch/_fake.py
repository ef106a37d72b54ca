"""Fake kernels of the stable route: shapes and dtypes by the schema's own rule, on symbolic sizes too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from opforge.errors import ArgumentError
from opforge.frameworks.torch._dtypes import from_torch, to_torch
from opforge.schema import ABSENT, Guards

if TYPE_CHECKING:
    from opforge.frameworks.torch._entries import Entry

__all__ = ["infer", "register"]


def _require(condition: Any) -> bool:  # noqa: ANN401 - bool or SymBool
    if isinstance(condition, torch.SymBool):
        check: Any = torch._check
        check(condition)
        return True
    return bool(condition)


GUARDS = Guards(decide=guard_or_false, require=_require)


def register(entry: Entry, library: Any) -> None:  # noqa: ANN401 - a torch.library.Library
    """Register the fake kernel."""

    def fake(*arguments: Any, **attributes: Any) -> Any:  # noqa: ANN401
        return infer(entry, arguments, attributes)

    torch.library.register_fake(entry.torch_name, fake, lib=library)


def infer(entry: Entry, arguments: tuple[Any, ...], attributes: dict[str, Any]) -> Any:  # noqa: ANN401
    """Make empty outputs for a call with these inputs."""
    shapes: list[Any] = []
    dtypes: list[Any] = []
    device = _device(entry, arguments)
    for parameter, value in zip(entry.signature.inputs, arguments, strict=False):
        for tensor in value if parameter.variadic else (value,):
            shapes.append(ABSENT if tensor is None else tensor.shape)
            dtypes.append(None if tensor is None else from_torch(tensor.dtype))
    # None stands for a default that PyTorch's schema language cannot write.
    given = {name: value for name, value in attributes.items() if value is not None}
    binding = entry.signature.bind(shapes, dtypes, given, where=entry.where, types=entry.types, guards=GUARDS)
    outputs: list[Any] = []
    made = iter(zip(binding.output_shapes, binding.output_dtypes, strict=True))
    for parameter, count in zip(entry.signature.outputs, binding.output_counts, strict=True):
        tensors = [_empty(*next(made), device) for _ in range(count)]
        outputs.append(tensors if parameter.variadic else tensors[0] if tensors else None)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _device(entry: Entry, arguments: tuple[Any, ...]) -> torch.device | None:
    """Return where the outputs are. Formulas take CPU tensors of no dimensions beside others, as PyTorch's own do."""
    tensors = [
        (parameter, tensor)
        for parameter, value in zip(entry.signature.inputs, arguments, strict=False)
        for tensor in (value if parameter.variadic else (value,))
        if tensor is not None
    ]
    device: torch.device | None = next((t.device for _, t in tensors if t.device.type != "cpu"), None)
    if device is None:
        return tensors[0][1].device if tensors else None
    for parameter, tensor in tensors:
        scalar = entry.is_formula and tensor.device.type == "cpu" and tensor.dim() == 0
        if tensor.device != device and not scalar:
            raise ArgumentError(
                "inputs are on different devices",
                where=f"{entry.where}, argument {parameter.name}",
                expected=f"all on {device}",
                got=tensor.device,
                hint="move them to one device",
            )
    return device


def _empty(shape: Any, dtype: Any, device: torch.device | None) -> torch.Tensor:  # noqa: ANN401
    sizes = [torch.library.get_ctx().new_dynamic_size() if size is None else size for size in shape]
    return torch.empty(sizes, dtype=to_torch(dtype), device=device)
