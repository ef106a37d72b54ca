"""Bytes of a program and back, with every check of docs/design/bytecode.md, and a listing for people."""

from __future__ import annotations

import struct

from opforge.errors import CorruptFileError, SchemaError
from opforge.expr._generated.opcodes import BY_NUMBER, OPCODES
from opforge.expr.nodes import ValueType
from opforge.expr.program import Constant, Instruction, Output, Program

__all__ = [
    "MAX_ATTRIBUTES",
    "MAX_INPUTS",
    "MAX_OUTPUTS",
    "MAX_VALUES",
    "NUMERICS_VERSION",
    "decode",
    "disassemble",
    "encode",
    "verify",
]

MAGIC = b"OFBC"
NUMERICS_VERSION = 1
MAX_INPUTS, MAX_ATTRIBUTES, MAX_OUTPUTS, MAX_VALUES = 64, 64, 16, 4096
_HEADER = struct.Struct("<4s8HI8s")
_INSTRUCTION = struct.Struct("<4HB7s")
_OUTPUT = struct.Struct("<2HB3s")
_NONE = 0xFFFF


def encode(program: Program) -> bytes:
    """The blob of a program; raises SchemaError where the program is wrong or exceeds a limit."""
    reason = check(program)
    if reason:
        raise SchemaError(f"the program cannot be encoded: {reason}")
    types = [*program.inputs, *program.attributes, *(c.type for c in program.constants)]
    body = bytes(types)
    body += bytes(-len(body) % 8)
    body += b"".join(struct.pack("<d", c.value) for c in program.constants)
    for i in program.instructions:
        args = (*i.args, _NONE, _NONE, _NONE)[:3]
        body += _INSTRUCTION.pack(OPCODES[i.op].number, *args, i.type, bytes(7))
    for o in program.outputs:
        body += _OUTPUT.pack(o.value, _NONE if o.sum_to is None else o.sum_to, o.type, bytes(3))
    counts = (
        len(program.inputs),
        len(program.attributes),
        len(program.constants),
        len(program.instructions),
        len(program.outputs),
        program.n_values,
    )
    return _HEADER.pack(MAGIC, NUMERICS_VERSION, 0, *counts, _HEADER.size + len(body), bytes(8)) + body


def decode(data: bytes | bytearray | memoryview) -> Program:
    """The program of a blob. Raises CorruptFileError on any damage; the blob may be hostile."""
    data = bytes(data)
    if len(data) < _HEADER.size:
        raise _corrupt("the header is cut off", f"at least {_HEADER.size} bytes", f"{len(data)} bytes")
    magic, version, flags, n_in, n_attr, n_const, n_instr, n_out, n_values, size, reserved = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise _corrupt("not a formula program", MAGIC, magic)
    if version != NUMERICS_VERSION:
        raise _corrupt("unknown numerics version", NUMERICS_VERSION, version)
    if flags or any(reserved):
        raise _corrupt("reserved header fields are set", 0, f"flags {flags}, reserved {reserved.hex()}")
    n_types = n_in + n_attr + n_const
    if n_values != n_types + n_instr:
        raise _corrupt("the count of values is wrong", n_types + n_instr, n_values)
    at_constants = _HEADER.size + n_types + -n_types % 8
    at_instructions = at_constants + 8 * n_const
    at_outputs = at_instructions + _INSTRUCTION.size * n_instr
    needed = at_outputs + _OUTPUT.size * n_out
    if size != needed or len(data) != size:
        raise _corrupt("the size is wrong", f"{needed} bytes", f"{size} in the header, {len(data)} given")
    if any(data[_HEADER.size + n_types : at_constants]):
        raise _corrupt("padding is not zero")
    types = [_type(t) for t in data[_HEADER.size : _HEADER.size + n_types]]
    values = struct.unpack_from(f"<{n_const}d", data, at_constants)
    instructions, outputs = [], []
    for k in range(n_instr):
        number, a, b, c, type_, padding = _INSTRUCTION.unpack_from(data, at_instructions + _INSTRUCTION.size * k)
        opcode = BY_NUMBER.get(number)
        if opcode is None:
            raise _corrupt(f"instruction {k} has an unknown opcode", got=hex(number))
        args = (a, b, c)
        if any(padding) or any(arg != _NONE for arg in args[opcode.arity :]):
            raise _corrupt(f"unused fields of instruction {k} ({opcode.name}) are set")
        instructions.append(Instruction(opcode.name, args[: opcode.arity], _type(type_)))
    for k in range(n_out):
        value, sum_to, type_, padding = _OUTPUT.unpack_from(data, at_outputs + _OUTPUT.size * k)
        if any(padding):
            raise _corrupt(f"reserved fields of output {k} are set")
        outputs.append(Output(value, None if sum_to == _NONE else sum_to, _type(type_)))
    program = Program(
        inputs=tuple(types[:n_in]),
        attributes=tuple(types[n_in : n_in + n_attr]),
        constants=tuple(Constant(v, t) for v, t in zip(values, types[n_in + n_attr :], strict=True)),
        instructions=tuple(instructions),
        outputs=tuple(outputs),
    )
    reason = check(program)
    if reason:
        raise _corrupt(reason)
    return program


def verify(data: bytes | bytearray | memoryview) -> None:
    """Raises CorruptFileError unless the bytes are a valid program."""
    decode(data)


def check(program: Program) -> str | None:
    """What is wrong with a program: limits, operand numbers, types; None when it is right."""
    for what, count, limit in (
        ("inputs", len(program.inputs), MAX_INPUTS),
        ("attributes", len(program.attributes), MAX_ATTRIBUTES),
        ("outputs", len(program.outputs), MAX_OUTPUTS),
        ("values", program.n_values, MAX_VALUES),
    ):
        if count > limit:
            return f"{count} {what}, the limit is {limit}"
    if not program.inputs or not program.outputs:
        return "a program needs at least one input and one output"
    if not program.inputs or not program.outputs:
        return "a program has at least one input and one output"
    types = program.value_types()
    for k, i in enumerate(program.instructions):
        if any(not 0 <= arg < program.first_instruction + k for arg in i.args):
            return f"instruction {k} ({i.op}) reads a value that is not defined before it"
        reason = _type_error(i, [types[arg] for arg in i.args])
        if reason:
            return f"instruction {k} ({i.op}) {reason}"
    for k, o in enumerate(program.outputs):
        if not 0 <= o.value < program.n_values:
            return f"output {k} names value {o.value} of {program.n_values}"
        if o.sum_to is not None and not 0 <= o.sum_to < len(program.inputs):
            return f"output {k} is summed to the shape of input {o.sum_to} of {len(program.inputs)}"
        if o.type is not types[o.value]:
            return f"output {k} has type {o.type.text}, its value {types[o.value].text}"
        if o.sum_to is not None and o.type is not ValueType.T:
            return f"output {k} of type {o.type.text} cannot be summed"
    return None


_ROUNDED = {
    "round_half": (ValueType.T,),
    **dict.fromkeys(("round_f16", "round_bf16"), (ValueType.T, ValueType.F32)),
}
"""Instruction -> types of values that it rounds."""


def _type_error(i: Instruction, args: list[ValueType]) -> str | None:
    opcode = OPCODES.get(i.op)
    if opcode is None:
        return "is unknown"
    if len(args) != opcode.arity:
        return f"has {len(args)} operands instead of {opcode.arity}"
    first, bool_ = args[0], ValueType.BOOL
    same = all(t is first for t in args)
    fits = {
        "COMPARE": same and i.type is bool_ and (opcode.arity == 2 or first.is_float),
        "LOGIC": same and first is bool_ and i.type is bool_,
        "SELECT": first is bool_ and all(t is i.type for t in args[1:]),
        "CAST": i.op == "cast" or (first in _ROUNDED.get(i.op, ()) and i.type is first),
    }.get(opcode.kind, same and first.is_float and i.type is first)
    return None if fits else f"has wrong types: ({', '.join(t.text for t in args)}) -> {i.type.text}"


def _type(number: int) -> ValueType:
    try:
        return ValueType(number)
    except ValueError:
        raise _corrupt("unknown value type", f"0 to {max(ValueType)}", number) from None


def _corrupt(what: str, expected: object = None, got: object = None) -> CorruptFileError:
    return CorruptFileError(what, where="formula bytecode", expected=expected, got=got)


def disassemble(program: Program) -> str:
    """One line per value and output."""
    lines, number = [], 0
    for kind, types in (("input", program.inputs), ("attribute", program.attributes)):
        for k, type_ in enumerate(types):
            lines.append(f"%{number} = {kind} {k} : {type_.text}")
            number += 1
    for constant in program.constants:
        lines.append(f"%{number} = {constant.value!r} : {constant.type.text}")
        number += 1
    for i in program.instructions:
        lines.append(f"%{number} = {i.op} {', '.join(f'%{a}' for a in i.args)} : {i.type.text}")
        number += 1
    for k, o in enumerate(program.outputs):
        to = "" if o.sum_to is None else f", summed to input {o.sum_to}"
        lines.append(f"output {k} = %{o.value} : {o.type.text}{to}")
    return "\n".join(lines)
