"""One call of an operator as a program that anybody can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opforge.errors import UnsupportedError
from opforge.schema import Operator
from opforge.verify._declared import target_of
from opforge.verify._rows import Array

__all__ = ["snippet"]

_TO_HOST = {
    "torch": ("import torch", "torch.from_numpy({})", "{}.numpy()"),
    "tensorflow": ("import tensorflow as tf", "tf.constant({})", "{}.numpy()"),
    "jax": ("import jax.numpy as jnp", "jnp.asarray({})", "np.asarray({})"),
}


def snippet(operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any], host: str) -> str:
    """Write a program that makes the call in the host, and prints its result beside the reference's."""
    try:
        target = target_of(operator)
    except UnsupportedError:
        target = operator.module
    framework = _TO_HOST.get(host.partition(" ")[0])
    lines = ["import numpy as np", "import ml_dtypes"] if _exotic(inputs) else ["import numpy as np"]
    lines += [framework[0]] if framework else []
    lines += ["import opforge as of", "", f"op = of.load({target + ':' + operator.name!r})[0]"]
    names = []
    for k, value in enumerate(inputs):
        names.append("None" if value is None else f"x{k}")
        if value is not None:
            lines.append(f"x{k} = {_literal(value)}")
    given = "".join(f", {name}={value!r}" for name, value in attributes.items())
    passed = [name if name == "None" or framework is None else framework[1].format(name) for name in names]
    lines += [f"got = op({', '.join(passed)}{given})", f"expected = op.reference({', '.join(names)}{given})"]
    lines += ['print("got     ", got)', 'print("expected", expected)']
    return "\n".join(f"    {line}" for line in lines)


def _exotic(inputs: Sequence[Array | None]) -> bool:
    return any(value is not None and value.dtype.name == "bfloat16" for value in inputs)


def _literal(value: Array) -> str:
    """Write an array with its dtype and strides."""
    dtype = "ml_dtypes.bfloat16" if value.dtype.name == "bfloat16" else f"np.{value.dtype.name}"
    if value.dtype.name == "bool":
        dtype = "np.bool_"
    if value.size == 0:
        return f"np.zeros({value.shape}, {dtype})"
    if value.ndim and all(stride == 0 for stride in value.strides):
        return f"np.broadcast_to(np.array({_numbers(value.reshape(-1)[0])}, {dtype}), {value.shape})"
    if value.ndim >= 2 and value.T.flags.c_contiguous and not value.flags.c_contiguous:
        return f"np.array({_numbers(value.T)}, {dtype}).T"
    dense = f"np.array({_numbers(value)}, {dtype})"
    if value.flags.c_contiguous:
        return dense
    if value.strides[0] == 0:
        return f"np.broadcast_to(np.array({_numbers(value[:1])}, {dtype}), {value.shape})"
    return f"np.repeat({dense}, 2, axis=-1)[..., ::2]"  # every second element


def _numbers(value: Any) -> str:  # noqa: ANN401 - an array or one element
    wide = np.asarray(value)
    plain = wide.tolist() if wide.dtype.kind in "biu" else wide.astype(np.float64).tolist()
    return repr(plain).replace("nan", "np.nan").replace("inf", "np.inf")
