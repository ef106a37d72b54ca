"""From expressions to a program and back."""

from __future__ import annotations

from collections.abc import Sequence

from opforge.expr.nodes import Node, ValueType, attribute, constant, input_, op, postorder
from opforge.expr.program import Constant, Instruction, Output, Program

__all__ = ["lift", "lower"]


def lower(
    outputs: Sequence[tuple[Node, int | None]],
    inputs: Sequence[ValueType],
    attributes: Sequence[ValueType] = (),
) -> Program:
    """A program of the expressions, as they stand (see `opforge.expr.simplify` for rewriting).

    Args:
        outputs: each an expression and the input whose shape it is summed to, or None.
        inputs: types of the inputs.
        attributes: types of the attributes.
    """
    order = list(postorder(node for node, _ in outputs))
    constants = [node for node in order if node.op == "constant"]
    first_constant = len(inputs) + len(attributes)
    number = {id(node): first_constant + k for k, node in enumerate(constants)}
    following = first_constant + len(constants)
    instructions = []
    for node in order:
        if node.op == "input":
            number[id(node)] = node.index
        elif node.op == "attribute":
            number[id(node)] = len(inputs) + node.index
        elif node.op != "constant":
            instructions.append(Instruction(node.op, tuple(number[id(a)] for a in node.args), node.type))
            number[id(node)] = following
            following += 1
    return Program(
        inputs=tuple(inputs),
        attributes=tuple(attributes),
        constants=tuple(Constant(node.value, node.type) for node in constants),
        instructions=tuple(instructions),
        outputs=tuple(Output(number[id(node)], sum_to, node.type) for node, sum_to in outputs),
    )


def lift(
    program: Program,
    inputs: Sequence[Node] | None = None,
    attributes: Sequence[Node] | None = None,
) -> list[Node]:
    """Expressions of a program's outputs, with its inputs and attributes replaced by the given ones.

    Nothing is folded or rewritten, so an inlined program keeps its roundings.
    """
    if inputs is None:
        inputs = [input_(k, t) for k, t in enumerate(program.inputs)]
    if attributes is None:
        attributes = [attribute(k, t) for k, t in enumerate(program.attributes)]
    values = [*inputs, *attributes, *(constant(c.value, c.type) for c in program.constants)]
    for i in program.instructions:
        values.append(op(i.op, *(values[a] for a in i.args), type=i.type))
    return [values[o.value] for o in program.outputs]
