"""Binding of a call to a signature: checks of what is passed, shapes and dtypes of what comes out.

Dimensions may be ints, symbolic ints of a framework, names (text), or unknown. Symbolic ints meet arithmetic and
``==`` only, and a condition over them is decided by ``Guards``, so that a framework can record it instead.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from opforge.errors import ArgumentError, DtypeError
from opforge.schema.attributes import AttributeValue, coerce_all
from opforge.schema.check import check_signature
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
    from opforge.schema.signature import Parameter, Signature

__all__ = ["ABSENT", "PLAIN", "Absent", "Binding", "DimValue", "Guards", "ShapeLike", "bind", "check_signature"]

DimValue = Any
"""An int, a symbolic int of a framework, a text (name or expression), or None = unknown."""


class Absent:
    """The type of ``ABSENT``."""

    def __repr__(self) -> str:
        """Give the public name."""
        return "ABSENT"


ABSENT: Final = Absent()
"""Stands for an optional input that is not there."""

ShapeLike = Sequence[DimValue] | None | Absent
"""A shape, None where even the rank is unknown, or ``ABSENT``."""


@dataclass(frozen=True)
class Guards:
    """How conditions over symbolic ints are decided.

    Attributes:
        decide: gives a condition's truth where either answer is fine (does this dimension broadcast?).
        require: gives False where a condition that a valid call must meet does not hold; a framework may record
            the condition and give True.
    """

    decide: Callable[[Any], bool] = bool
    require: Callable[[Any], bool] = bool


PLAIN: Final = Guards()


@dataclass
class Binding:
    """What a call's arguments say.

    Attributes:
        output_shapes: one per output tensor, flat; None where the rank is unknown.
        output_dtypes: one per output tensor; None where the input that decides is unknown.
        dims: value of each name: a dimension, or a list of them for ``*S`` (None = unknown).
        types: dtype of each type variable that is known.
        attributes: coerced, with defaults, in declared order.
        input_counts: tensors per input parameter.
        output_counts: tensors per output parameter; 0 where its optional input is absent.
    """

    output_shapes: list[list[DimValue] | None] = field(default_factory=list)
    output_dtypes: list[DType | None] = field(default_factory=list)
    dims: dict[str, Any] = field(default_factory=dict)
    types: dict[str, DType] = field(default_factory=dict)
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    input_counts: list[int] = field(default_factory=list)
    output_counts: list[int] = field(default_factory=list)


def bind(
    signature: Signature,
    shapes: Sequence[ShapeLike],
    dtypes: Sequence[DType | None],
    attributes: Mapping[str, object],
    where: str,
    types: Mapping[str, tuple[DType, ...]] | None,
    guards: Guards,
) -> Binding:
    """Bind a call; see ``Signature.bind``."""
    coerced = coerce_all(signature.attributes, attributes, where)
    tensors, counts = _assign(signature, shapes, dtypes, where)
    binding = Binding(input_counts=counts, attributes=coerced)
    binding.types = _bind_types(tensors, types, where)
    solver = _Solver(where, guards)
    for attribute in signature.attributes:
        if attribute.kind == "int":
            solver.known[attribute.name] = binding.attributes[attribute.name]
            solver.origin[attribute.name] = f"attribute {attribute.name}"
    solver.bind_inputs(tensors)
    for parameter in signature.outputs:
        present = all(name in solver.known for dim in parameter.dims for name in names(dim))
        if parameter.is_generic and parameter.optional:
            present = present and any(tensor.parameter.type == parameter.type for tensor in tensors)
        count = 0 if not present else counts[-1] if parameter.variadic else 1
        binding.output_counts.append(count)
        if count:
            shape = solver.output_shape(parameter)
            dtype = binding.types.get(parameter.type) if parameter.is_generic else parameter.dtype
            binding.output_shapes += [None if shape is None else list(shape) for _ in range(count)]
            binding.output_dtypes += [dtype] * count
    binding.dims = {
        name: (None if v is None else [_export(d) for d in v]) if name in solver.runs else _export(v)
        for name, v in solver.known.items()
    }
    return binding


@dataclass(frozen=True)
class _Tensor:
    """One input tensor of a call."""

    parameter: Parameter
    label: str
    shape: list[DimValue] | None
    dtype: DType | None


def _assign(
    signature: Signature, shapes: Sequence[ShapeLike], dtypes: Sequence[DType | None], where: str
) -> tuple[list[_Tensor], list[int]]:
    """Give each tensor its parameter; tensors beyond the last parameter belong to the variadic one."""
    tensors: list[_Tensor] = []
    counts = [0] * len(signature.inputs)
    if (len(shapes) > len(counts) and not signature.variadic) or len(dtypes) != len(shapes):
        raise _wrong_count(signature, where, len(shapes))
    for position, shape in enumerate(shapes):
        index = min(position, len(counts) - 1)
        parameter = signature.inputs[index]
        if isinstance(shape, Absent):
            if not parameter.optional:
                at = _at(where, f"argument {parameter.name}")
                raise ArgumentError("missing input", where=at, expected="a tensor", got="nothing")
            continue
        label = f"argument {parameter.name}" + (f"[{counts[index]}]" if parameter.variadic else "")
        known = None if shape is None else [_import(d) for d in shape]
        tensors.append(_Tensor(parameter, label, known, dtypes[position]))
        counts[index] += 1
    if any(not count and not p.optional for count, p in zip(counts, signature.inputs, strict=True)):
        raise _wrong_count(signature, where, len(tensors))
    return tensors, counts


def _bind_types(tensors: list[_Tensor], types: Mapping[str, tuple[DType, ...]] | None, where: str) -> dict[str, DType]:
    found: dict[str, DType] = {}
    origin: dict[str, str] = {}
    for tensor in tensors:
        variable, dtype = tensor.parameter.type, tensor.dtype
        if dtype is None:
            continue
        if not tensor.parameter.is_generic:
            if dtype.name != variable:
                raise DtypeError("wrong dtype", where=_at(where, tensor.label), expected=variable, got=dtype.name)
            continue
        if variable in found:
            if found[variable] != dtype:
                expected = f"{found[variable].name}, as {variable} in {origin[variable]}"
                raise DtypeError("wrong dtype", where=_at(where, tensor.label), expected=expected, got=dtype.name)
            continue
        if types is not None and dtype not in types.get(variable, (dtype,)):
            allowed = f"{variable}: {', '.join(d.name for d in types[variable])}"
            raise DtypeError("wrong dtype", where=_at(where, tensor.label), expected=allowed, got=dtype.name)
        found[variable] = dtype
        origin[variable] = tensor.label
    return found


class _Solver:
    """The values of dimension names during one call."""

    def __init__(self, where: str, guards: Guards) -> None:
        self.where = where
        self.guards = guards
        self.known: dict[str, Any] = {}  # a dimension, or a list of them (None = unknown rank) for a name in runs
        self.origin: dict[str, str] = {}
        self.runs: set[str] = set()

    def bind_inputs(self, tensors: list[_Tensor]) -> None:
        """Bind names and runs first, then solve and check expressions until none is left."""
        pending: list[tuple[_Tensor, int, Binary]] = []
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

    def _match(self, tensor: _Tensor) -> list[tuple[int, Dim]]:
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

    def _bind_name(self, tensor: _Tensor, index: int, name: str, value: DimValue) -> None:
        if name not in self.known:
            self.known[name] = value
            self.origin[name] = tensor.label
        else:
            expected = self.known[name]
            self._check(tensor, index, expected, name)
            self.known[name] = _sharper(expected, value)
            if self.known[name] is not expected:
                self.origin[name] = tensor.label

    def _bind_run(self, tensor: _Tensor, name: str, run: list[DimValue]) -> None:
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

    def _solve(self, tensor: _Tensor, index: int, dim: Binary) -> bool:
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
        return [_export(d) for d in shape]

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

    def _check(self, tensor: _Tensor, index: int, expected: DimValue, name: str) -> None:
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
        raise ArgumentError(what, where=_at(self.where, label), expected=expected, got=got)


def _import(dim: DimValue) -> DimValue:
    if isinstance(dim, str):
        return parse_symbolic(dim)
    if isinstance(dim, numbers.Integral):
        size = int(dim)
        return size if size >= 0 else None  # hosts and ONNX write -1 for an unknown size
    return dim


def _export(dim: DimValue) -> DimValue:
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


def _at(where: str, label: str) -> str:
    return f"{where}, {label}" if where else label


def _wrong_count(signature: Signature, where: str, got: int) -> ArgumentError:
    return ArgumentError("wrong number of inputs", where=where or None, expected=signature.expected_inputs(), got=got)
