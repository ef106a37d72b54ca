"""Rows of `cases.py`, read: what an author may write for an input, and the words for what is no description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Final

import numpy as np

from opforge.errors import SchemaError
from opforge.schema import Parameter
from opforge.schema.registry import nearest

__all__ = ["described", "numbers", "require_keys"]

_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "shape": frozenset({"shape", "low", "high", "normal"}),
    "values": frozenset({"values"}),
    "csr": frozenset({"csr"}),
}
"""What tells the kinds of descriptions apart -> the keys that each may have."""
_CSR: Final = frozenset({"rows", "columns", "density", "part"})
_FORMS: Final = '{"shape": [...], "low": a, "high": b}, {"shape": [...], "normal": s}, {"values": [...]}, or the values'


def described(parameter: Parameter, spec: Any, where: str) -> Any:  # noqa: ANN401 - what an author wrote
    """Return the description of an input as mappings: values that stand alone become ``{"values": ...}``.

    Raises:
        SchemaError: it is none; the message names the input and what is wrong.
    """
    where = f"{where}, input {parameter.name}"
    if not parameter.variadic:
        return _one(spec, where)
    if isinstance(spec, Mapping):
        return [_one(spec, where)]
    if not isinstance(spec, list | tuple) or not spec:
        raise SchemaError("a variadic input takes a list, a description for each tensor", where=where, got=repr(spec))
    return [_one(one, f"{where}[{k}]") for k, one in enumerate(spec)]


def require_keys(found: Mapping[str, Any], known: frozenset[str], where: str, what: str) -> None:
    """Refuse keys that mean nothing, with the nearest that does."""
    strange = sorted(str(key) for key in found if key not in known)
    if strange:
        close = nearest(strange[0], known)
        raise SchemaError(
            f"{what} has keys that mean nothing",
            where=where,
            expected=", ".join(sorted(known)),
            got=", ".join(strange),
            hint=f"did you mean {close}?" if close else None,
        )


def _one(spec: Any, where: str) -> Mapping[str, Any]:  # noqa: ANN401
    if not isinstance(spec, Mapping):
        return {"values": numbers(spec, where)}
    kinds = [kind for kind in _KINDS if kind in spec]
    if len(kinds) != 1:
        known = frozenset().union(*_KINDS.values())
        require_keys(spec, known, where, "the description of an input")
        raise SchemaError("no description of an input", where=where, expected=_FORMS, got=repr(dict(spec)))
    (kind,) = kinds
    require_keys(spec, _KINDS[kind], where, "the description of an input")
    if kind == "values":
        return {"values": numbers(spec["values"], where)}
    if kind == "csr":
        _require_csr(spec["csr"], where)
        return spec
    shape = spec["shape"]
    whole = isinstance(shape, list | tuple) and all(isinstance(n, Integral) and int(n) >= 0 for n in shape)
    if not whole:
        raise SchemaError("a shape is a list of sizes", where=where, expected="whole numbers from 0", got=repr(shape))
    if ("low" in spec) != ("high" in spec) and "normal" not in spec:
        raise SchemaError("low and high belong together", where=where, expected=_FORMS, got=repr(dict(spec)))
    return spec


def _require_csr(spec: Any, where: str) -> None:  # noqa: ANN401
    if not isinstance(spec, Mapping) or set(spec) != _CSR or spec["part"] not in ("values", "indices", "indptr"):
        raise SchemaError(
            "no description of a CSR matrix's part",
            where=where,
            expected='{"csr": {"rows": m, "columns": n, "density": p, "part": "values", "indices" or "indptr"}}',
            got=repr(spec),
        )


def numbers(values: Any, where: str = "cases.py") -> np.ndarray[Any, Any]:  # noqa: ANN401
    """Return an array of lists of numbers, booleans and the texts "nan", "inf" and "-inf"."""
    if isinstance(values, np.ndarray):
        return values
    try:
        return _nested(values)
    except (TypeError, ValueError):
        shown = repr(values)
        raise SchemaError(
            "these are no values",
            where=where,
            expected='an array, or lists of equal length of numbers, "nan", "inf" and "-inf"',
            got=shown if len(shown) < 100 else f"{shown[:100]}...",
        ) from None


def _nested(values: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    if isinstance(values, Sequence) and not isinstance(values, str):
        parts = [_nested(value) for value in values]
        if parts and all(part.dtype.kind in "bi" for part in parts):
            return np.array(parts)  # integers beyond 2**53 keep their digits
        return np.array(parts, np.float64)
    if isinstance(values, bool | np.bool_):
        return np.array(bool(values))
    if isinstance(values, Integral):
        return np.array(int(values), np.int64) if -(2**63) <= int(values) < 2**63 else np.array(int(values), np.uint64)
    return np.array(float(values), np.float64)
