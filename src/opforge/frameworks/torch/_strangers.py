"""Functions that others registered with PyTorch: what they are, how to call them, what their backward really gives."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._library.custom_ops import CustomOpDef

from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.frameworks.torch._arrays import to_tensor
from opforge.schema.registry import nearest

__all__ = ["Stranger", "find_overload", "load_extension", "raw_gradients"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Stranger:
    """A function over tensors, called with tensors by position and attributes by name.

    Attributes:
        function: what is called.
        name: of it.
        overload: the operator of ``torch.ops``, or None for a function that is not registered.
        positional: whether attributes follow the tensors by position, as ``autograd.Function.apply`` wants them.
    """

    function: Any
    name: str
    overload: Any = None
    positional: bool = False

    @classmethod
    def of(cls, given: Any) -> Stranger:  # noqa: ANN401
        """Recognise an autograd.Function, an operator of ``torch.ops`` or torch.library, or a plain function."""
        if isinstance(given, type) and issubclass(given, torch.autograd.Function):
            return cls(given.apply, given.__name__, positional=True)
        if isinstance(given, torch._ops.OpOverloadPacket):
            given = getattr(given, given.overloads()[0])  # type: ignore[no-untyped-call]
        if isinstance(given, torch._ops.OpOverload):
            return cls(given, str(given._schema.name), given)
        if isinstance(given, CustomOpDef):
            return cls(given, given._qualname, given._opoverload)
        if not callable(given):
            raise ArgumentError(
                "this is no function of tensors",
                where="check",
                expected="a torch.autograd.Function, an operator of torch.ops, or a function",
                got=type(given).__name__,
            )
        return cls(given, getattr(given, "__name__", type(given).__name__))

    def __call__(self, *tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        """Call it."""
        if self.positional:
            return self.function(*tensors, *attributes.values())
        return self.function(*tensors, **attributes)


def find_overload(path: str) -> Any:  # noqa: ANN401 - an OpOverloadPacket
    """Return the operator ``torch.ops.namespace.name``.

    Raises:
        MissingOperatorError: nothing is registered under the name.
    """
    namespace, _, name = path.removeprefix("torch.ops.").partition(".")
    try:
        return getattr(getattr(torch.ops, namespace), name)
    except AttributeError:
        known = [entry for entry in torch._C._dispatch_get_all_op_names() if entry.startswith(f"{namespace}::")]
        near = nearest(f"{namespace}::{name}", known)
        raise MissingOperatorError(
            "PyTorch knows no such operator",
            where=path,
            got=", ".join(known[:8]) or f"nothing in {namespace}",
            hint=f"did you mean {near}?" if near else "name the library that registers it with --library",
        ) from None


def load_extension(path: Path) -> None:
    """Load a library that registers operators.

    Raises:
        UnsupportedError: it does not load; an undefined symbol of PyTorch says that it was built against another.
    """
    try:
        ctypes.CDLL(str(path.resolve()))  # its error names the symbol
        torch.ops.load_library(str(path.resolve()))  # type: ignore[no-untyped-call]
    except OSError as problem:
        text = str(problem)
        symbol = re.search(r"undefined symbol: (\S+)", text)
        foreign = symbol is not None and re.search(r"c10|at4|torch|caffe2", symbol[1])
        hint = (
            f"it was built against another PyTorch than {torch.__version__} (its C++ ABI flag is "
            f"{torch._C._GLIBCXX_USE_CXX11_ABI}); build it again with this one"
            if foreign
            else "build it for this machine, with everything that it needs beside it"
        )
        raise UnsupportedError("the library does not load", where=str(path), got=text, hint=hint) from None


def raw_gradients(
    function: Stranger, arrays: Sequence[Array | None], grads: Sequence[Array], attributes: Mapping[str, Any]
) -> tuple[list[torch.Tensor | None] | str, list[torch.Tensor | None]]:
    """Call the backward function itself, before autograd sums, expands or casts what it gives.

    Returns:
        One gradient per input, as it came; or a text that says why there is none. And the inputs.
    """
    leaves = [None if a is None else to_tensor(a).requires_grad_(a.dtype.kind not in "biu") for a in arrays]
    result = function(*leaves, **attributes)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    recorded = [o for o in outputs if isinstance(o, torch.Tensor) and o.grad_fn is not None]
    if not recorded:
        return "no output is connected to the inputs: backward stops silently, and every gradient is None", leaves
    node: Any = recorded[0].grad_fn
    if not hasattr(node, "_forward_cls") or any(o.grad_fn is not node for o in recorded):
        return "", leaves  # not one backward function in Python: there is nothing raw to look at
    given = [to_tensor(np.asarray(g)) for g in grads]
    found = node.apply(*given)
    values = list(found) if isinstance(found, tuple | list) else [found]
    expected = len(leaves) + len(attributes)
    if function.overload is not None:  # torch.library passes one argument more, and leaves out those at defaults
        values = values[:-1]
        expected = len(function.overload._schema.arguments) if len(values) > len(leaves) else len(leaves)
    if len(values) < len(leaves) or (function.positional and len(values) != expected):
        return (
            f"backward returns {len(values)} gradients, the forward function takes {expected} arguments; return one "
            "for each, None for those without"
        ), leaves
    return values[: len(leaves)], leaves
