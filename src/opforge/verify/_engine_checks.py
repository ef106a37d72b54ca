"""Checks of an operator's values in inference engines, as models of one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opforge.engines import Engine
from opforge.errors import ArgumentError, OpforgeError, UnsupportedError
from opforge.schema import DType, Operator, f32
from opforge.verify._engines import engines
from opforge.verify._rows import Array, Row, choices, held, label
from opforge.verify.cases import Case, Tolerance, arrays, cases_of, tolerance
from opforge.verify.support import engine_host

__all__ = ["in_engine", "usable_engines"]

_REASON = "the engine computes the node's body by kernels of its own"
_OF_BODIES = {
    "f64": Tolerance(1e-10, 1e-12, _REASON),
    "f32": Tolerance(1e-3, 1e-5, _REASON),
    "f16": Tolerance(2**-6, 2**-10, f"{_REASON}, and rounds each step"),
    "bf16": Tolerance(2**-3, 2**-7, f"{_REASON}, and rounds each step"),
}


class _RefusedError(Exception):
    """An engine does not take the model; that is a limit of the engine, not a fault of the operator."""


def usable_engines() -> list[Engine]:
    """Return the engines that are here, prepared."""
    found = [engine for engine in engines().values() if engine.availability().ok]
    for engine in found:
        engine.prepare()
    return found


def in_engine(operator: Operator, engine: Engine, count: int, seed: int) -> Iterator[Row]:
    """The first cases with elements, in every choice of dtypes; one note says what the engine does not take."""
    plain = engine_host(engine)
    has_body = operator.is_formula or operator.onnx_body is not None
    by_body = has_body and engine.traits().operators[0] == "bodies"
    limits = dict(_OF_BODIES) if by_body else {}
    for name in engine.traits().narrowed:
        limits[name] = limits.get("f32") or tolerance(operator, f32)
    # Which dtypes an engine's own kernels take, some say only when they run.
    limit_of_engine = (UnsupportedError, ArgumentError) if by_body else (UnsupportedError,)

    def compute(op: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any]) -> list[Array]:
        try:
            return plain.compute(op, inputs, attributes)
        except limit_of_engine as problem:
            raise _RefusedError(str(problem)) from problem

    host = replace(plain, compute=compute)
    refused: dict[str, list[str]] = {}
    for types in choices(operator):
        narrowed = any(dtype.name in engine.traits().narrowed for dtype in types.values())
        for case, inputs in _points(operator, types, count, seed):
            if narrowed and not case.finite:
                continue  # infinities and large numbers are cut off on the way to the narrower dtype
            try:
                yield held(operator, host, case, case.name, inputs, types, "engine", limits)
            except _RefusedError as problem:
                reason = str(problem).splitlines()[0].rpartition("case.onnx: ")[2]  # a file that nobody will find
                refused.setdefault(reason, []).append(label(types))
                break
            except OpforgeError as problem:
                yield Row("engine", case.name, engine.name, label(types), False, str(problem))
    for reason, names in refused.items():
        dtypes = ", ".join(dict.fromkeys(name for name in names if name)) or "this operator"
        yield Row("engine", "left out", engine.name, "", True, f"{engine.name} does not take {dtypes}: {reason}")


def _points(
    operator: Operator, types: Mapping[str, DType], count: int, seed: int
) -> list[tuple[Case, list[Array | None]]]:
    points = [(case, arrays(operator, case, types, seed=seed)) for case in cases_of(operator)]
    return [(case, inputs) for case, inputs in points if all(v is None or v.size for v in inputs)][:count]
