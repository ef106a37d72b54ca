"""Binding of a call to a signature: checks of what is passed, shapes and dtypes of what comes out.

Dimensions may be ints, symbolic ints of a framework, names (text), or unknown. Symbolic ints meet arithmetic and
``==`` only, and a condition over them is decided by ``Guards``, so that a framework can record it instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from opforge.errors import ArgumentError, DtypeError
from opforge.schema.attributes import AttributeValue, coerce_all
from opforge.schema.check import check_signature
from opforge.schema.dims import names
from opforge.schema.dtypes import DType
from opforge.schema.solver import PLAIN, DimValue, Guards, Solver, Tensor, at, export_dim, import_dim

if TYPE_CHECKING:
    from opforge.schema.signature import Signature

__all__ = ["ABSENT", "PLAIN", "Absent", "Binding", "DimValue", "Guards", "ShapeLike", "bind", "check_signature"]


class Absent:
    """The type of ``ABSENT``."""

    def __repr__(self) -> str:
        """Give the public name."""
        return "ABSENT"


ABSENT: Final = Absent()
"""Stands for an optional input that is not there."""

ShapeLike = Sequence[DimValue] | None | Absent
"""A shape, None where even the rank is unknown, or ``ABSENT``."""


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
    solver = Solver(where, guards)
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
        name: (None if v is None else [export_dim(d) for d in v]) if name in solver.runs else export_dim(v)
        for name, v in solver.known.items()
    }
    return binding


def _assign(
    signature: Signature, shapes: Sequence[ShapeLike], dtypes: Sequence[DType | None], where: str
) -> tuple[list[Tensor], list[int]]:
    """Give each tensor its parameter; tensors beyond the last parameter belong to the variadic one."""
    tensors: list[Tensor] = []
    counts = [0] * len(signature.inputs)
    if (len(shapes) > len(counts) and not signature.variadic) or len(dtypes) != len(shapes):
        raise _wrong_count(signature, where, len(shapes))
    for position, shape in enumerate(shapes):
        index = min(position, len(counts) - 1)
        parameter = signature.inputs[index]
        if isinstance(shape, Absent):
            if not parameter.optional:
                place = at(where, f"argument {parameter.name}")
                raise ArgumentError("missing input", where=place, expected="a tensor", got="nothing")
            continue
        label = f"argument {parameter.name}" + (f"[{counts[index]}]" if parameter.variadic else "")
        known = None if shape is None else [import_dim(d) for d in shape]
        tensors.append(Tensor(parameter, label, known, dtypes[position]))
        counts[index] += 1
    if any(not count and not p.optional for count, p in zip(counts, signature.inputs, strict=True)):
        raise _wrong_count(signature, where, len(tensors))
    return tensors, counts


def _bind_types(tensors: list[Tensor], types: Mapping[str, tuple[DType, ...]] | None, where: str) -> dict[str, DType]:
    found: dict[str, DType] = {}
    origin: dict[str, str] = {}
    for tensor in tensors:
        variable, dtype = tensor.parameter.type, tensor.dtype
        if dtype is None:
            continue
        if not tensor.parameter.is_generic:
            if dtype.name != variable:
                raise DtypeError("wrong dtype", where=at(where, tensor.label), expected=variable, got=dtype.name)
            continue
        if variable in found:
            if found[variable] != dtype:
                expected = f"{found[variable].name}, as {variable} in {origin[variable]}"
                raise DtypeError("wrong dtype", where=at(where, tensor.label), expected=expected, got=dtype.name)
            continue
        if types is not None and dtype not in types.get(variable, (dtype,)):
            allowed = f"{variable}: {', '.join(d.name for d in types[variable])}"
            raise DtypeError("wrong dtype", where=at(where, tensor.label), expected=allowed, got=dtype.name)
        found[variable] = dtype
        origin[variable] = tensor.label
    return found


def _wrong_count(signature: Signature, where: str, got: int) -> ArgumentError:
    return ArgumentError("wrong number of inputs", where=where or None, expected=signature.expected_inputs(), got=got)
