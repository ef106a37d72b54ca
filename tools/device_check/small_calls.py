"""A few small calls of every kernel, for compute-sanitizer: values are compared too."""

from __future__ import annotations

import sys

import numpy as np

from opforge.build import device_library
from opforge.cuda.device import Session
from opforge.errors import ToolchainError
from opforge.schema import DType
from opforge.verify.cases import arrays, cases_of
from tools.device_check.operators import operators

_LARGEST = 4000


def main() -> int:
    """Run the small cases of each operator in f32."""
    count = 0
    with Session() as session:
        for operator in operators():
            try:
                library = device_library(operator, "cuda")
            except ToolchainError as error:
                print(f"left out {operator.name}: {str(error).splitlines()[0]}")
                continue
            types = {v: DType.parse("f32") if any(d.is_float for d in k) else k[0] for v, k in operator.types.items()}
            for case in cases_of(operator):
                inputs = arrays(operator, case, types, seed=0)
                if sum(a.size for a in inputs if a is not None) > _LARGEST or not case.finite:
                    continue
                found = session.call(operator, inputs, case.attributes, library=library)
                right = operator.reference(*[None if a is None else _wide(a) for a in inputs], **case.attributes)
                rights = right if isinstance(right, tuple) else (right,)
                for one, expected in zip(found, rights, strict=True):
                    np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)
                count += 1
    print(f"{count} calls")
    return 0 if count else 1


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


if __name__ == "__main__":
    sys.exit(main())
