"""Shared by the tests of expressions: formulas of one instruction, exact values, a float32 evaluator of programs."""

import mpmath as mp
import numpy as np

from opforge.expr import Formula
from opforge.expr.formulas import FormulaOutput
from opforge.expr.nodes import ValueType, constant, input_, op
from opforge.expr.reference import evaluate_exactly
from opforge.expr.semantics import cast, evaluate


def formula(node, n_inputs=1, attributes=()):
    names = "abcdefgh"[:n_inputs]
    return Formula("t::F", names, attributes, [FormulaOutput("y", node)])


def exact(node, *inputs, attributes=()):
    return evaluate_exactly(node, inputs, attributes)


def relative_error(got, wanted):
    wanted = mp.mpf(wanted)
    difference = abs(mp.mpf(got) - wanted)
    return float(difference if wanted == 0 else difference / abs(wanted))


def run_f32(program, *inputs, attributes=()):
    """Executes a program with every result rounded to float32: the best any kernel can do."""
    values = [np.asarray(a, np.float32) for a in inputs]
    values += [np.float32(a) for a in attributes]
    values += [np.float32(c.value) for c in program.constants]
    for i in program.instructions:
        args = [
            np.asarray(values[a], np.float64) if np.asarray(values[a]).dtype.kind == "f" else values[a] for a in i.args
        ]
        result = cast(args[0], i.type) if i.op == "cast" else evaluate(i.op, args, i.type)
        with np.errstate(over="ignore"):
            values.append(np.asarray(result, np.float32) if i.type is ValueType.T else result)
    return [values[o.value] for o in program.outputs]


def leaf(index):
    return input_(index)


def instruction(name):
    """A node of one instruction on as many inputs as it takes; conditions are made of inputs."""
    from opforge.expr._generated.opcodes import OPCODES

    arity = OPCODES[name].arity
    if name == "select":
        return op("select", op("gt", leaf(0), constant(0.0)), leaf(1), leaf(2)), 3
    if OPCODES[name].kind == "LOGIC":
        return op(name, *(op("gt", leaf(k), constant(0.0)) for k in range(arity))), arity
    if name == "cast":
        return op("cast", op("gt", leaf(0), constant(0.0)), type=ValueType.T), 1
    return op(name, *(leaf(k) for k in range(arity))), arity
