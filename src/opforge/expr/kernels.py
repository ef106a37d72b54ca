"""`of.kernel`: an operator whose kernels its author writes in C++ or CUDA."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opforge.errors import SchemaError
from opforge.expr.tensor_trace import trace_gradient
from opforge.schema import DType, Operator, Signature, parse_types, register

__all__ = ["kernel"]


def kernel(
    name: str,
    signature: str,
    *,
    types: str | Mapping[str, Iterable[DType | str]],
    sources: Sequence[str | Path],
    reference: Callable[..., Any] | None,
    gradient: Callable[..., Any] | None = None,
    since: int = 1,
    differentiable: bool | None = None,
    autocast: str = "promote",
    nan: str = "propagate",
    host_name: str | None = None,
    deterministic: bool = True,
    pure: bool = True,
    strided: bool = False,
    doc: str | None = None,
    onnx_body: str | None = None,
) -> Operator:
    """Declare a kernel operator.

    Args:
        name: ``domain::Name``.
        signature: text in the signature language, e.g. ``"(x: T[n]; k: int = 1) -> (y: T[n])"``.
        types: the dtypes that each type variable may take, e.g. ``{"T": of.floating}``.
        sources: kernel source files beside the declaring file.
        reference: float64 NumPy function of the inputs and attributes; verification needs it.
        gradient: ``gradient(inputs, outputs, grad_outputs, attrs) -> {input: tensor or None}``, made of operator
            calls; traced when it is first asked for, so operators may name each other.
        since: since_version.
        differentiable: False: backward raises; None: whether a gradient is given.
        autocast: "promote", "f32", "lower" or "none".
        nan: NaN policy, "propagate" or "ignore".
        host_name: name in hosts instead of the one in snake case.
        deterministic: whether equal inputs give equal bits.
        pure: whether it has no effects, so that it may be folded and shared.
        strided: the kernels read tensors by their strides; otherwise hosts pass dense ones.
        doc: text for people.
        onnx_body: nodes in ONNX's text form that compute the outputs from the inputs by their names; exported models
            carry them, so that runtimes without the kernel can run the operator.

    Raises:
        SchemaError: the declaration is wrong, or a source file is missing.
    """
    domain, separator, short = name.partition("::")
    if not separator:
        raise SchemaError("an operator's name has a domain", where=name, expected="domain::Name", got=repr(name))
    frame = sys._getframe(1)
    file = Path(frame.f_code.co_filename)
    paths = [file.parent / source for source in sources]
    missing = [str(p) for p in paths if not p.is_file()]
    if missing:
        raise SchemaError(
            "a kernel source file is missing",
            where=name,
            expected=", ".join(missing),
            hint=f"paths are relative to {file}",
        )
    if differentiable and gradient is None:
        raise SchemaError("a differentiable kernel operator needs gradient=", where=name)
    parsed = Signature.parse(signature, where=name)
    known = parse_types(types, parsed, where=name)

    def program() -> str | None:
        return None if gradient is None else trace_gradient(gradient, parsed, known, name)

    return register(
        Operator(
            domain,
            short,
            parsed,
            types=types,
            since_version=since,
            pure=pure,
            deterministic=deterministic,
            differentiable=gradient is not None if differentiable is None else differentiable,
            autocast=autocast,
            nan_policy=nan,
            gradient=program if gradient is not None and differentiable is not False else None,
            host_name=host_name,
            doc=doc or "",
            onnx_body=onnx_body,
            sources=paths,
            strided=strided,
            reference_function=reference,
            module=frame.f_globals.get("__name__", ""),
            declared_at=f"{file}:{frame.f_lineno}",
        )
    )
