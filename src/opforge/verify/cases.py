"""Cases of an operator: the plain data of its ``cases.py``, and the arrays made from them.

``CASES`` is a list of dicts with ``name``, ``inputs`` and, where they differ from the defaults, ``attributes``.
Each input is one of

    {"shape": [3, 5], "low": -2.0, "high": 2.0}     drawn evenly
    {"shape": [3, 5], "normal": 1.5}                 drawn from a normal distribution of this deviation
    {"values": [0.0, -0.0, "nan", "-inf"]}           as listed
    {"csr": {"rows": 4, "columns": 6, "density": 0.3, "part": "values"}}    part of one random CSR matrix

``TOLERANCES`` gives by dtype (rtol, atol, reason): what the result may differ from the float64 reference.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from opforge.errors import SchemaError
from opforge.schema import DType, Operator

__all__ = ["Case", "Tolerance", "cases_of", "tolerances_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Tolerance:
    """What a result may differ from the reference: absolute plus relative, and why that much."""

    rtol: float
    atol: float
    reason: str


@dataclass(frozen=True)
class Case:
    """One set of inputs: specifications by parameter name, and attributes."""

    name: str
    inputs: Mapping[str, Mapping[str, Any]]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def arrays(self, operator: Operator, types: Mapping[str, DType], seed: int = 0) -> list[Array]:
        """Make the inputs in the order of the signature; the same seed gives the same values for every dtype."""
        made = []
        for parameter in operator.signature.inputs:
            dtype = types[parameter.type] if parameter.is_generic else parameter.dtype
            if parameter.name not in self.inputs or dtype is None:
                raise SchemaError("the case has no such input", where=f"{operator.key}, case {self.name}", expected=parameter.name)
            made.append(_draw(self.inputs[parameter.name], parameter.name, seed).astype(dtype.numpy))
        return made


def cases_of(operator: Operator) -> list[Case]:
    """Return the cases of the operator's ``cases.py``; gradient and helper operators have their own names there."""
    listed = _module(operator, "CASES", [])
    if isinstance(listed, dict):
        listed = listed.get(operator.name, [])
    return [Case(row["name"], row["inputs"], row.get("attributes", {})) for row in listed]


def tolerances_of(operator: Operator) -> dict[str, Tolerance]:
    """Return the tolerance by dtype name."""
    return {name: Tolerance(*row) for name, row in _module(operator, "TOLERANCES", {}).items()}


def _module(operator: Operator, name: str, default: Any) -> Any:  # noqa: ANN401 - data of an author's module
    package = operator.module.rpartition(".")[0]
    try:
        module = import_module(f"{package}.cases")
    except ModuleNotFoundError:
        return default
    return getattr(module, name, default)


def _draw(spec: Mapping[str, Any], name: str, seed: int) -> Array:
    if "values" in spec:
        values = np.array([float(v) for v in np.ravel(np.array(spec["values"], object))])
        return values.reshape(np.array(spec["values"], object).shape)
    if "csr" in spec:
        return _csr(spec["csr"], seed)
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    shape = tuple(spec["shape"])
    if "normal" in spec:
        return rng.normal(0.0, spec["normal"], shape)
    return rng.uniform(spec.get("low", -1.0), spec.get("high", 1.0), shape)


def _csr(spec: Mapping[str, Any], seed: int) -> Array:
    """One matrix per (rows, columns, density, seed): its parts agree with each other. Columns are unsorted and repeat."""
    rng = np.random.default_rng([seed, spec["rows"], spec["columns"]])
    counts = rng.binomial(spec["columns"], spec["density"], spec["rows"])
    if spec["rows"] > 1 and spec["columns"] > 0:
        counts[rng.integers(spec["rows"])] = 0  # an empty row
    total = int(counts.sum())
    if spec["part"] == "indptr":
        return np.concatenate([[0], np.cumsum(counts)])
    if spec["part"] == "indices":
        return rng.integers(0, max(1, spec["columns"]), total)
    return rng.normal(0.0, 1.0, total)
