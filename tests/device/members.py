"""Which operators the tests are about, with the derivatives of formulas, and arrays for them."""

import ml_dtypes
import numpy as np

import opforge as of
from opforge.codegen.units import dtype_choices
from opforge.schema import DType
from opforge.verify.cases import tolerance
from tests.device.conftest import REHEARSING
from tests.device.formulas import gate
from tools.device_check.operators import rehearsed


def declared():
    """The operators of the library that have CUDA kernels; in a rehearsal those that it builds."""
    found = [o for o in of.load("opforge.ops") if o.is_formula or any(s.suffix == ".cu" for s in o.sources)]
    return [o for o in found if o.name in rehearsed()] if REHEARSING else [*found, gate]


def formulas():
    return [operator for operator in declared() if operator.is_formula]


def family(operator):
    """The operator with its first and second derivative, as (name of the member, operator)."""
    members = [operator]
    while members[-1].is_formula and members[-1].gradient and len(members) < 3:
        members.append(members[-1].gradient_operator)
    return [m for m in members if m is not None]


def choices(operator):
    """Every choice of dtypes as a dict by type variable."""
    return [dict(zip(operator.types, row, strict=True)) for row in dtype_choices(operator)]


def name_of(types):
    return "-".join(d.name for d in types.values())


def wide(array):
    """The array in what references compute with."""
    return None if array is None else array.astype(np.float64) if DType.parse(array.dtype).is_float else array


def right(operator, arrays, attributes=None):
    """The reference's results on these arrays, as a list."""
    found = operator.reference(*[wide(a) for a in arrays], **(attributes or {}))
    return list(found) if isinstance(found, tuple) else [found]


def close(operator, found, expected, factor=1.0):
    """Assert that results agree within the operator's tolerance."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        kind = DType.parse(one.dtype)
        allowed = tolerance(operator, kind)
        other = np.asarray(other)
        assert one.shape == other.shape
        if not kind.is_float:
            np.testing.assert_array_equal(one, other)
            continue
        finite = np.abs(other[np.isfinite(other)]).max(initial=0)
        limit = min(finite, 60000) if kind.name == "f16" else finite
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = other.astype(one.dtype).astype(np.float64)  # what is too large for the dtype is infinite there
        np.testing.assert_allclose(
            one.astype(np.float64),
            rounded,
            rtol=factor * allowed.rtol * 2,
            atol=factor * (allowed.atol + allowed.rtol * float(limit)),
        )


def draw(operator, shapes, dtype="f32", seed=0):
    """Normal numbers in these shapes, one per input."""
    rng = np.random.default_rng(seed)
    kind = {"bf16": ml_dtypes.bfloat16}.get(dtype) or DType.parse(dtype).numpy
    return [(rng.standard_normal(shape) * 2).astype(kind) for shape in shapes]
