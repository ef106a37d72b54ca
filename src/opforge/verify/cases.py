"""Cases of an operator: plain data in its `cases.py`, turned into arrays here.

An input is described by one of::

    {"shape": [3, 4], "low": -6.0, "high": 6.0}      uniform (integers where the parameter is an integer)
    {"shape": [3, 4], "normal": 2.0}                 normal with this standard deviation (1 when left out)
    {"values": [1.0, "nan", "-inf"]}                 these values ("nan", "inf", "-inf" as text)
    [1.0, "nan", "-inf"]                             the same
    [{...}, {...}]                                   the tensors of a variadic input
    {"csr": {"rows": 4, "columns": 5, "density": 0.3, "part": "values" | "indices" | "indptr"}}

The parts of one CSR matrix agree; its rows may be empty, its columns are unsorted and may repeat.

Beside ``CASES`` the file may hold, by operator name: ``SURROGATES``, for an operator whose gradient is deliberately
not its derivative (straight-through estimators), the function over float64 arrays whose derivative it is; ``LIMITS``,
for a formula whose intermediate results overflow before its result does, the largest finite input that it is made for
and the reason; ``DRAWS``, described in `opforge.verify.sweep`; ``TUNING``, described in `opforge.verify.tuning`. And
``TOLERANCES`` (dtype: relative, absolute, reason).
"""

from __future__ import annotations

import math
import sys
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np

from opforge._sources import spec_of_file
from opforge.errors import SchemaError
from opforge.schema import ABSENT, DType, Operator, Parameter
from opforge.schema.author import author_function
from opforge.verify._case_rows import described, numbers, require_keys

__all__ = [
    "Case",
    "Tolerance",
    "arrays",
    "case_of",
    "cases_of",
    "differentiable_cases",
    "draw_of",
    "give_cases",
    "limit_of",
    "parameters",
    "surrogate",
    "tolerance",
    "tuning_of",
]

Array = np.ndarray[Any, Any]
_LARGE = 100_000


@dataclass(frozen=True)
class Tolerance:
    """Allowed |error| <= atol + rtol*|expected|, and why."""

    rtol: float
    atol: float
    reason: str


_DEFAULTS = {
    "f64": Tolerance(1e-12, 1e-14, "default: libm functions of 1 ULP, a few roundings"),
    "f32": Tolerance(4e-6, 1e-7, "default: functions of at most 4 ULP and a few roundings"),
    "bf16": Tolerance(2**-7, 1e-6, "default: one rounding to 8 bits of significand, inputs rounded as well"),
    "f16": Tolerance(2**-10, 2**-23, "default: one rounding to 11 bits of significand; denormals below 6e-5"),
}


@dataclass(frozen=True)
class Case:
    """One set of inputs and attributes."""

    name: str
    inputs: Mapping[str, Mapping[str, Any] | list[Mapping[str, Any]]]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finite(self) -> bool:
        """Whether every given value is finite."""
        specs: list[Mapping[str, Any]] = []
        for spec in self.inputs.values():
            specs += spec if isinstance(spec, list) else [spec]
        given = [spec["values"] for spec in specs if "values" in spec]
        return all(bool(np.isfinite(numbers(values)).all()) for values in given)


def cases_of(operator: Operator) -> list[Case]:
    """Return the cases of an operator: those of the `cases.py` beside its declaration, else drawn from its schema.

    Raises:
        SchemaError: a kernel operator without cases, since only its author knows which values it takes.
    """
    if operator in _given:
        return list(_given[operator][0])
    module = _module(operator)
    rows: Any = getattr(module, "CASES", None)
    if isinstance(rows, Mapping):
        rows = rows.get(operator.name)
    if rows is None:
        if operator.formula is None:
            place = operator.declared_at.rpartition(":")[0] or "its declaration"
            raise SchemaError(
                "the operator has no cases",
                where=operator.qualified_name,
                expected=f"a list CASES in cases.py beside {place}",
                hint="opforge new --kernel writes an example",
            )
        return _drawn(operator)
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise SchemaError(
            "cases are a list",
            where=operator.qualified_name,
            expected='[{"name": ..., "inputs": {...}, "attributes": {...}}, ...]',
            got=repr(rows)[:100],
        )
    return [case_of(operator, row, f"case {k}") for k, row in enumerate(rows)]


_given: weakref.WeakKeyDictionary[Operator, tuple[Sequence[Case], Mapping[str, Tolerance]]]
_given = weakref.WeakKeyDictionary()


def give_cases(operator: Operator, cases: Sequence[Case], tolerances: Mapping[str, Tolerance]) -> None:
    """Let an operator that no file declares, such as a stranger's function, have these cases and tolerances."""
    _given[operator] = tuple(cases), dict(tolerances)


def case_of(operator: Operator, row: Mapping[str, Any], name: str = "case") -> Case:
    """Return the case that a row of plain data describes; ``name`` is that of a row without one.

    Raises:
        SchemaError: it is no row, names inputs that the operator has not, or describes none.
    """
    where = f"{operator.qualified_name}, {name}"
    if not isinstance(row, Mapping) or not isinstance(row.get("inputs"), Mapping):
        expected = '{"name": ..., "inputs": {...}, "attributes": {...}}'
        raise SchemaError("no case", where=where, expected=expected, got=repr(row)[:100])
    if "name" in row:
        where = f"{operator.qualified_name}, case {row['name']}"
    require_keys(row, frozenset({"name", "inputs", "attributes"}), where, "a case")
    known = {p.name: p for p in operator.signature.inputs}
    strange = set(row["inputs"]) - set(known)
    if strange:
        raise SchemaError(
            "a case names inputs that are not there",
            where=where,
            expected=", ".join(sorted(known)),
            got=", ".join(sorted(strange)),
            hint="write the cases anew in cases.py beside the declaration"
            + ("; without that file a formula is checked with drawn cases" if operator.formula is not None else ""),
        )
    given = {key: described(known[key], spec, where) for key, spec in row["inputs"].items() if spec is not None}
    return Case(str(row.get("name", name)), given, row.get("attributes", {}))


def _drawn(operator: Operator) -> list[Case]:
    """Shapes that broadcast in every way, for a formula without cases."""
    required = [attribute.name for attribute in operator.signature.attributes if attribute.required]
    if required:
        raise SchemaError(
            "the operator has attributes without defaults and no cases that give them",
            where=operator.qualified_name,
            expected=f"a list CASES in cases.py beside the declaration, with {', '.join(required)} in attributes",
            hint="or give the attributes defaults",
        )
    names = [p.name for p in operator.signature.inputs]
    shapes: dict[str, list[list[int]]] = {
        "vector": [[257]] * len(names),
        "broadcast": [[7, 33] if i % 2 == 0 else [33] for i in range(len(names))],
        "scalar": [[] for _ in names],
        "empty": [[3, 0]] * len(names),
    }
    return [
        Case(title, {name: {"shape": shape, "normal": 2.0} for name, shape in zip(names, row, strict=True)})
        for title, row in shapes.items()
    ]


def tolerance(operator: Operator, dtype: DType) -> Tolerance:
    """Return the operator's tolerance for results of a dtype; integers and booleans must be equal."""
    if not dtype.is_float:
        return Tolerance(0.0, 0.0, "exact")
    if operator in _given and dtype.name in _given[operator][1]:
        return _given[operator][1][dtype.name]
    rows: Mapping[str, Any] = getattr(_module(operator), "TOLERANCES", {})
    if dtype.name in rows:
        rtol, atol, reason = rows[dtype.name]
        return Tolerance(float(rtol), float(atol), str(reason))
    return _DEFAULTS[dtype.name]


def differentiable_cases(operator: Operator, types: Mapping[str, DType], seed: int) -> list[tuple[Case, list[Any]]]:
    """Return the finite cases with their arrays, without large ones where smaller ones show the same derivatives."""
    points = [(case, arrays(operator, case, types, seed=seed)) for case in cases_of(operator) if case.finite]
    small = [(case, inputs) for case, inputs in points if _elements(operator, case, inputs) <= _LARGE]
    return small or points


def _elements(operator: Operator, case: Case, inputs: Sequence[Array | None]) -> int:
    """Count the elements of inputs and outputs."""
    shapes = [ABSENT if value is None else value.shape for value in inputs]
    dtypes = [None if value is None else DType.parse(value.dtype) for value in inputs]
    outputs = operator.bind(shapes, dtypes, case.attributes).output_shapes
    counts = [math.prod(int(d) for d in shape if d is not None) for shape in outputs if shape is not None]
    return sum(counts) + sum(int(value.size) for value in inputs if value is not None)


def surrogate(operator: Operator) -> Callable[..., Any] | None:
    """Return the function whose derivative the operator's gradient is, where that is not its reference."""
    rows: Mapping[str, Callable[..., Any]] = getattr(_module(operator), "SURROGATES", {})
    return rows.get(operator.name)


def tuning_of(operator: Operator) -> Mapping[str, Any]:
    """Return what `opforge tune` tries for a kernel operator; see `opforge.verify.tuning`."""
    rows: Mapping[str, Mapping[str, Any]] = getattr(_module(operator), "TUNING", {})
    return rows.get(operator.name, {})


def limit_of(operator: Operator) -> float:
    """Return the largest finite input that a formula is made for: the author's word, else infinity."""
    rows: Mapping[str, Any] = getattr(_module(operator), "LIMITS", {})
    if operator.name not in rows:
        return math.inf
    row = rows[operator.name]
    if not isinstance(row, tuple | list) or len(row) != 2 or not isinstance(row[0], int | float) or not row[0] > 0:
        raise SchemaError(
            "no limit of a formula's inputs",
            where=f"{operator.qualified_name}, LIMITS in cases.py",
            expected="(largest finite input, reason)",
            got=repr(row),
        )
    return float(row[0])


def draw_of(operator: Operator) -> Callable[[np.random.Generator, dict[str, Any]], Mapping[str, Any]] | None:
    """Return the author's function that draws inputs which obey rules; see `opforge.verify.sweep`."""
    rows: Mapping[str, Callable[..., Any]] = getattr(_module(operator), "DRAWS", {})
    return rows.get(operator.name)


def _module(operator: Operator) -> Any:  # noqa: ANN401 - a module, or None
    """Load `cases.py` of the folder that declares the operator."""
    if operator in _given or operator.is_gradient:  # which is declared wherever it was first asked for
        return None
    file = Path(operator.declared_at.rpartition(":")[0])
    path = file.with_name("cases.py")
    if not file.name or not path.is_file():
        return None
    name = f"_opforge_cases_{zlib.crc32(str(path).encode()):08x}"
    if name not in sys.modules:
        spec = spec_of_file(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = util.module_from_spec(spec)
        with author_function("cases.py does not load", str(path)):
            spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def arrays(operator: Operator, case: Case, types: Mapping[str, DType], *, seed: int = 0) -> list[Array | None]:
    """Return one array per input tensor, rounded to its dtype; None for an absent optional.

    The tensors of a variadic input, which is the last one, follow each other; see `parameters`.
    """
    made: list[Array | None] = []
    for parameter in operator.signature.inputs:
        spec = case.inputs.get(parameter.name)
        if spec is None and not parameter.variadic:
            made.append(None)
            continue
        for index, one in enumerate(spec if isinstance(spec, list) else [spec or {}]):
            made.append(_array(parameter, one, types, f"{case.name}/{index}" if index else case.name, seed))
    return made


def parameters(operator: Operator, inputs: Sequence[Array | None]) -> list[Parameter]:
    """Return the parameter that each tensor of a call belongs to."""
    declared = list(operator.signature.inputs)
    return declared[: len(inputs)] + declared[-1:] * (len(inputs) - len(declared))


def _array(parameter: Parameter, spec: Mapping[str, Any], types: Mapping[str, DType], case: str, seed: int) -> Array:
    dtype = types[parameter.type] if parameter.type in types else DType.parse(parameter.type)
    rng = np.random.default_rng([seed, zlib.crc32(f"{case}/{parameter.name}".encode())])
    if "csr" in spec:
        wide = _csr(spec["csr"], seed)
    elif "values" in spec:
        wide = numbers(spec["values"])
    elif dtype.is_float:
        shape = spec["shape"]
        wide = (
            rng.uniform(spec["low"], spec["high"], shape)
            if "low" in spec
            else rng.standard_normal(shape) * spec.get("normal", 1.0)
        )
    else:
        wide = rng.integers(int(spec.get("low", 0)), int(spec.get("high", 2)), spec["shape"])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(np.asarray(wide).astype(dtype.numpy)).reshape(np.shape(wide))


def _csr(spec: Mapping[str, Any], seed: int) -> Array:
    rows, columns = int(spec["rows"]), int(spec["columns"])
    rng = np.random.default_rng([seed, rows, columns])
    counts = rng.binomial(columns, float(spec["density"]), rows) if columns else np.zeros(rows, np.int64)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    parts: dict[str, Array] = {
        "indptr": indptr,
        "indices": rng.integers(0, max(columns, 1), int(indptr[-1])),
        "values": rng.standard_normal(int(indptr[-1])),
    }
    return parts[str(spec["part"])]
