"""The values of dimension names during one call: binding, solving, checking and broadcasting of dimensions."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opforge.errors import ArgumentError
from opforge.schema.dims import (
    AnyDim,
    Binary,
    Broadcast,
    Dim,
    DimensionError,
    Integer,
    Name,
    Rest,
    evaluate,
    linear,
    names,
)
from opforge.schema.dtypes import DType
from opforge.schema.symbols import Symbolic, parse_symbolic

if TYPE_CHECKING:
    from opforge.schema.signature import Parameter

__all__ = ["PLAIN", "DimValue", "Guards", "Solver", "Tensor", "at", "export_dim", "import_dim"]

DimValue = Any
"""An int, a symbolic int of a framework, a text (name or expression), or None = unknown."""


@dataclass(frozen=True)
class Guards:
    """How conditions over symbolic ints are decided.

    Attributes:
        decide: gives a condition's truth where either answer is fine (does this dimension broadcast?).
        require: gives False where a condition that a valid call must meet does not hold; a framework may record
            the condition and give True.
        broadcast: gives the size of two that broadcast and are not both plain numbers, where a host can compute it
            without deciding which of them is 1.
    """

    decide: Callable[[Any], bool] = bool
    require: Callable[[Any], bool] = bool
    broadcast: Callable[[Any, Any], Any] | None = None


PLAIN: Final = Guards()


@dataclass(frozen=True)
class Tensor:
    """One input tensor of a call."""

    parameter: Parameter
    label: str
    shape: list[DimValue] | None
    dtype: DType | None


class Solver:
    """The values of dimension names during one call."""

    def __init__(self, where: str, guards: Guards) -> None:
        self.where = where
        self.guards = guards
        self.known: dict[str, Any] = {}  # a dimension, or a list of them (None = unknown rank) for a name in runs
        self.origin: dict[str, str] = {}
        self.runs: set[str] = set()

    def bind_inputs(self, tensors: list[Tensor]) -> None:
        """Bind names and runs first, then solve and check expressions until none is left."""
        pending: list[tuple[Tensor, int, Binary]] = []
        for tensor in tensors:
            for index, dim in self._match(tensor):
                value = tensor.shape[index]  # type: ignore[index]
                if isinstance(dim, Integer):
                    self._check(tensor, index, dim.value, str(dim))
                elif isinstance(dim, Name):
                    self._bind_name(tensor, index, dim.name, value)
                elif isinstance(dim, Binary):
                    pending.append((tensor, index, dim))
        while pending:
            rest = [item for item in pending if not self._solve(*item)]
            if len(rest) == len(pending):
                break
            pending = rest
        for tensor in tensors:  # what only tensors of unknown rank could have bound is unknown
            for dim in tensor.parameter.dims:
                for name in names(dim):
                    if isinstance(dim, Rest):
                        self.runs.add(name)
                    if tensor.shape is None:
                        self.known.setdefault(name, None)
                        self.origin.setdefault(name, tensor.label)

    def _match(self, tensor: Tensor) -> list[tuple[int, Dim]]:
        """Pair a tensor's dimensions with the declared ones; binds the run of ``*S``."""
        declared, shape = tensor.parameter.dims, tensor.shape
        if shape is None:
            return []
        rank = tensor.parameter.rank
        least = len(declared) if rank is not None else len(declared) - 1
        if len(shape) != least if rank is not None else len(shape) < least:
            more = "" if rank is not None else " or more"
            self._fail(
                tensor.label,
                "wrong rank",
                f"rank {least}{more}, {tensor.parameter.shape_text}",
                f"rank {len(shape)}, shape {_shape_text(shape)}",
            )
        pairs: list[tuple[int, Dim]] = []
        index = 0
        for dim in declared:
            if isinstance(dim, Rest):
                length = len(shape) - least
                self._bind_run(tensor, dim.name, shape[index : index + length])
                index += length
            else:
                pairs.append((index, dim))
                index += 1
        return pairs

    def _bind_name(self, tensor: Tensor, index: int, name: str, value: DimValue) -> None:
        if name not in self.known:
            self.known[name] = value
            self.origin[name] = tensor.label
        else:
            expected = self.known[name]
            self._check(tensor, index, expected, name)
            self.known[name] = _sharper(expected, value)
            if self.known[name] is not expected:
                self.origin[name] = tensor.label

    def _bind_run(self, tensor: Tensor, name: str, run: list[DimValue]) -> None:
        self.runs.add(name)
        known = self.known.get(name)
        if known is None:
            self.known[name] = list(run)
            self.origin[name] = tensor.label
            return
        if len(known) != len(run) or not all(self._equal(a, b) for a, b in zip(known, run, strict=True)):
            self._fail(
                tensor.label,
                "wrong shape",
                f"*{name} = {_shape_text(known)}, as in {self.origin[name]}",
                f"{_shape_text(run)} in shape {_shape_text(tensor.shape or [])}",
            )
        self.known[name] = [_sharper(a, b) for a, b in zip(known, run, strict=True)]

    def _solve(self, tensor: Tensor, index: int, dim: Binary) -> bool:
        """Check an expression whose names are known, or solve ``a*n+b`` for n; False = not yet possible."""
        value = tensor.shape[index]  # type: ignore[index]
        missing = {name for name in names(dim) if name not in self.known}
        if not missing:
            self._check(tensor, index, self._evaluate(tensor.label, dim), str(dim))
            return True
        form = linear(dim)
        if form is None:
            return False
        factor, name, offset = form
        solved = None
        if value is not None:
            difference = value - offset
            exact = factor in (1, -1) or isinstance(value, Symbolic)
            solved = difference if factor == 1 else difference // factor
            bad = not exact and not self.guards.require(difference % factor == 0)
            if not isinstance(value, Symbolic) and not bad and (offset > 0 or factor < 0):
                bad = not self.guards.require(solved >= 0)
            if bad:
                got = f"{_dim_text(value)} in shape {_shape_text(tensor.shape or [])}"
                self._fail(tensor.label, f"dimension {index} is wrong", f"{dim} with {name} >= 0", got)
        self.known[name] = solved
        self.origin[name] = tensor.label
        return True

    def output_shape(self, parameter: Parameter) -> list[DimValue] | None:
        """Compute an output's shape; None where its rank is unknown."""
        label = f"output {parameter.name}"
        shape: list[DimValue] = []
        for dim in parameter.dims:
            if isinstance(dim, AnyDim):
                shape.append(None)
            elif isinstance(dim, Rest | Broadcast):
                run = self.known[dim.name] if isinstance(dim, Rest) else self._broadcast(label, dim)
                if run is None:
                    return None
                shape.extend(run)
            else:
                value = self._evaluate(label, dim)
                if isinstance(value, int) and value < 0:
                    self._fail(label, "negative dimension", f"{dim} >= 0", str(value))
                shape.append(value)
        return [export_dim(d) for d in shape]

    def _broadcast(self, label: str, dim: Broadcast) -> list[DimValue] | None:
        runs = [self.known[name] for name in dim.names]
        if any(run is None for run in runs):
            return None
        result: list[DimValue] = []
        for back in range(1, max(map(len, runs)) + 1):
            value: DimValue = 1
            for run in runs:
                if back <= len(run):
                    value = self._broadcast_pair(label, dim, value, run[-back])
            result.append(value)
        return result[::-1]

    def _broadcast_pair(self, label: str, dim: Broadcast, left: DimValue, right: DimValue) -> DimValue:
        if left is right or (isinstance(right, int) and right == 1):
            return left
        if isinstance(left, int) and left == 1:
            return right
        if isinstance(left, int) and isinstance(right, int):
            if left != right:
                self._broadcast_conflict(label, dim)
            return left
        if isinstance(left, Symbolic | None) or isinstance(right, Symbolic | None):
            if left == right or isinstance(left, int):
                return left
            return right if isinstance(right, int) else None  # a name may turn out to be 1
        if self.guards.broadcast is not None:
            return self.guards.broadcast(left, right)
        if self.guards.decide(left == 1):
            return right
        if self.guards.decide(right == 1):
            return left
        if not self.guards.require(left == right):
            self._broadcast_conflict(label, dim)
        return _sharper(left, right)

    def _broadcast_conflict(self, label: str, dim: Broadcast) -> None:
        got = ", ".join(f"{name} = {_shape_text(self.known[name])} in {self.origin[name]}" for name in dim.names)
        self._fail(label, "shapes do not broadcast", "dimensions, counted from the right, that are equal or 1", got)

    def _evaluate(self, label: str, dim: Integer | Name | Binary) -> DimValue:
        try:
            return evaluate(dim, self.known)
        except DimensionError as error:
            used = ", ".join(f"{name} = {_dim_text(self.known[name])}" for name in dict.fromkeys(names(dim)))
            got = f"{error} with {used}" if used else str(error)
            self._fail(label, "a dimension cannot be computed", str(dim), got)

    def _check(self, tensor: Tensor, index: int, expected: DimValue, name: str) -> None:
        value = tensor.shape[index]  # type: ignore[index]
        if not self._equal(expected, value):
            shown = name if name == _dim_text(expected) else f"{name} = {_dim_text(expected)}"
            if name in self.origin:
                shown += f", as in {self.origin[name]}" if "attribute" not in self.origin[name] else ", the attribute"
            got = f"{_dim_text(value)} in shape {_shape_text(tensor.shape or [])}"
            self._fail(tensor.label, f"dimension {index} is wrong", shown, got)

    def _equal(self, left: DimValue, right: DimValue) -> bool:
        """Whether two dimensions may be equal: unknown ones may, a framework's symbols are asked."""
        if left is None or right is None or left is right:
            return True
        if isinstance(left, int) and isinstance(right, int):
            return left == right
        if isinstance(left, Symbolic) or isinstance(right, Symbolic):
            return (left - right).constant in (None, 0)
        return self.guards.require(left == right)

    def _fail(self, label: str, what: str, expected: str, got: str) -> Any:  # noqa: ANN401 - never returns
        raise ArgumentError(what, where=at(self.where, label), expected=expected, got=got)


def import_dim(dim: DimValue) -> DimValue:
    """Turn a caller's dimension into what the solver computes with."""
    if isinstance(dim, str):
        return parse_symbolic(dim)
    if isinstance(dim, numbers.Integral):
        size = int(dim)
        return size if size >= 0 else None  # hosts and ONNX write -1 for an unknown size
    return dim


def export_dim(dim: DimValue) -> DimValue:
    """Turn a dimension into what callers get: text for a name or an expression over names."""
    if isinstance(dim, Symbolic):
        return str(dim) if dim.constant is None else dim.constant
    return dim


def _sharper(left: DimValue, right: DimValue) -> DimValue:
    """Of two equal dimensions, the one that says more."""
    if left is None or isinstance(right, int):
        return left if isinstance(left, int) else right
    return left


def _dim_text(dim: DimValue) -> str:
    return "?" if dim is None else str(dim)


def _shape_text(shape: Sequence[DimValue]) -> str:
    return f"[{', '.join(map(_dim_text, shape))}]"


def at(where: str, label: str) -> str:
    """Join operator and argument for an error message."""
    return f"{where}, {label}" if where else label
