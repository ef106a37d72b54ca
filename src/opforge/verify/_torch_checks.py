"""Checks that only PyTorch needs: fake kernels promise what real ones do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from opforge.errors import OpforgeError
from opforge.schema import Operator
from opforge.verify._rows import Row, choices, label
from opforge.verify.cases import arrays, cases_of

__all__ = ["fake_kernel"]


def fake_kernel(operator: Operator, seed: int) -> Iterator[Row]:
    """Number, shape, dtype, strides and device of the fake kernel's outputs against the real ones'."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from opforge.frameworks.torch._arrays import to_tensor

    def described(result: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - one tensor or several
        tensors = result if isinstance(result, tuple | list) else [result]
        return [(list(t.shape), str(t.dtype), list(t.stride()), str(t.device)) for t in tensors]

    for types in choices(operator):
        found = ""
        for case in cases_of(operator):
            tensors = [None if v is None else to_tensor(v) for v in arrays(operator, case, types, seed=seed)]
            try:
                real = described(operator(*tensors, **case.attributes))
                with FakeTensorMode(shape_env=ShapeEnv()) as mode:
                    fakes = [None if t is None else mode.from_tensor(t, static_shapes=True) for t in tensors]
                    fake = described(operator(*fakes, **case.attributes))
            except OpforgeError as problem:
                found = f"case {case.name}: {problem}"
                break
            except Exception as problem:
                found = f"case {case.name}: {type(problem).__name__}: {problem}"
                break
            # Data-dependent sizes are symbols in the fake outputs; only their number of dimensions is known.
            for a, b in zip(real, fake, strict=False):
                symbolic = any(not isinstance(size, int) for size in b[0])
                if len(a[0]) != len(b[0]) or a[1] != b[1] or (not symbolic and a != b):
                    found = f"case {case.name}: real (shape, dtype, strides, device) {a}, fake {b}"
            if len(real) != len(fake):
                found = f"case {case.name}: {len(real)} real outputs, {len(fake)} fake ones"
            if found:
                break
        yield Row("fake kernel", "shape, dtype, strides", "torch", label(types), not found, found)
