"""Building one program out of many operators: what the compiler uses to fuse elementwise nodes.

builder = ProgramBuilder()
x = builder.input()
y = builder.op("add", x, builder.constant(1.0))
(z,) = builder.inline(custom_gelu.formula.program(), [builder.op("round_half", y)])
builder.output(z)
blob = builder.build().encode()
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opforge.errors import SchemaError
from opforge.expr.lower import lift, lower
from opforge.expr.nodes import Node, ValueType, attribute, constant, input_, op
from opforge.expr.program import Program

__all__ = ["ProgramBuilder"]


class ProgramBuilder:
    """Collects inputs, operations and outputs; values are `Node` objects, equal ones are shared."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._inputs: list[ValueType] = []
        self._attributes: list[ValueType] = []
        self._outputs: list[tuple[Node, int | None]] = []

    def input(self, type: ValueType | str = ValueType.T) -> Node:
        """A further tensor input."""
        self._inputs.append(_value_type(type))
        return input_(len(self._inputs) - 1, self._inputs[-1])

    def attribute(self, type: ValueType | str = ValueType.T) -> Node:
        """A further scalar attribute, fed at run time."""
        self._attributes.append(_value_type(type))
        return attribute(len(self._attributes) - 1, self._attributes[-1])

    def constant(self, value: float, type: ValueType | str = ValueType.T) -> Node:
        """A constant."""
        return constant(value, _value_type(type))

    def op(self, name: str, *values: Node, type: ValueType | str | None = None) -> Node:
        """An instruction of opcodes.def; ``type`` only for ``cast``. Raises SchemaError where operands do not fit."""
        try:
            return op(name, *values, type=None if type is None else _value_type(type))
        except (KeyError, ValueError) as error:
            what = f"unknown instruction {name!r}" if isinstance(error, KeyError) else str(error)
            raise SchemaError(what, where="ProgramBuilder.op") from None

    def inline(
        self,
        program: Program,
        inputs: Sequence[Node],
        attributes: Sequence[float | Node] = (),
    ) -> list[Node]:
        """The outputs of another program applied to values of this one; its roundings stay as they are.

        Attribute values become constants, rounded to float32 as hosts do. Programs that sum an output cannot
        be inlined.
        """
        counts = (len(inputs), len(attributes))
        if counts != (len(program.inputs), len(program.attributes)):
            raise SchemaError(
                "an inlined program gets all of its inputs and attributes",
                where="ProgramBuilder.inline",
                expected=f"{len(program.inputs)} inputs and {len(program.attributes)} attributes",
                got=f"{counts[0]} and {counts[1]}",
            )
        if any(o.sum_to is not None for o in program.outputs):
            raise SchemaError("a program that sums over dimensions cannot be inlined", where="ProgramBuilder.inline")
        given = [
            value if isinstance(value, Node) else constant(float(np.float32(value)), type_)
            for value, type_ in zip(attributes, program.attributes, strict=True)
        ]
        return lift(program, inputs, given)

    def output(self, value: Node, sum_to: Node | int | None = None) -> int:
        """A further output, summed to the shape of an input when one is given; returns its index."""
        if isinstance(sum_to, Node):
            sum_to = sum_to.index
        self._outputs.append((value, sum_to))
        return len(self._outputs) - 1

    def build(self, *, simplify: bool = False, fma: bool = False) -> Program:
        """The program.

        Args:
            simplify: apply the rewrites of `opforge.expr.simplify`; off, the compiler's operations stay as given.
            fma: fuse a product into the sum that alone reads it (one rounding instead of two).
        """
        outputs = self._outputs
        if simplify or fma:
            from opforge.expr import simplify as passes

            roots = [node for node, _ in outputs]
            if simplify:
                roots = passes.simplify(roots)
            if fma:
                roots = passes.fuse_fma(roots)
            outputs = [(node, sum_to) for node, (_, sum_to) in zip(roots, outputs, strict=True)]
        return lower(outputs, self._inputs, self._attributes)


def _value_type(type_: ValueType | str) -> ValueType:
    return type_ if isinstance(type_, ValueType) else ValueType.parse(type_)
