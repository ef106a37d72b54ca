"""A formula's program, run instruction by instruction with the operators of a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opforge.expr.nodes import ValueType
from opforge.expr.program import Program

__all__ = ["evaluate"]


def evaluate(
    program: Program,
    inputs: Sequence[Any],
    attributes: Sequence[Any],
    functions: Mapping[str, Callable[..., Any]],
    *,
    constant: Callable[[Any, ValueType], Any],
    cast: Callable[[Any, ValueType], Any],
    round_half: Callable[[Any], Any],
) -> list[Any]:
    """Return every value of the program by its number.

    Args:
        program: the formula's.
        inputs: tensors in the type of the computation.
        attributes: values in declared order.
        functions: instruction -> function of tensors; all but casts and roundings.
        constant: makes a scalar tensor of a type.
        cast: converts a tensor: float to integer truncates and saturates, NaN gives 0; anything but 0 is true.
        round_half: rounds to the operator's half type and back; the identity for others.
    """
    values = list(inputs)
    values += [constant(value, kind) for value, kind in zip(attributes, program.attributes, strict=True)]
    values += [constant(item.value, item.type) for item in program.constants]
    for instruction in program.instructions:
        operands = [values[k] for k in instruction.args]
        if instruction.op == "cast":
            values.append(cast(operands[0], instruction.type))
        elif instruction.op == "round_half":
            values.append(round_half(operands[0]))
        else:
            values.append(functions[instruction.op](*operands))
    return values
