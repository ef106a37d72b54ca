"""Programs as bytes: round trips, the listing, and blobs that are damaged or hostile."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opforge as of
from opforge.errors import CorruptFileError, SchemaError
from opforge.expr import Constant, Instruction, Output, Program, ProgramBuilder, ValueType, blob
from opforge.expr.nodes import input_
from opforge.expr.trace import Expr
from tests.soak import FACTOR
from tests.unit.expr.helpers import formula

T = ValueType.T
HEADER, INSTRUCTION, OUTPUT = 32, 16, 8


def sample():
    x, y = Expr(input_(0)), Expr(input_(1))
    return formula(of.where(x > y, of.exp(x) * 2.5, of.cast(of.cast(y, of.i32), "T")).node, 2).gradient().program()


def test_round_trip():
    x, y = Expr(input_(0)), Expr(input_(1))
    for expression in (x + y, of.sigmoid(x) * y - 0.1, of.clip(x, y, 3), of.isnan(x), of.cast(x, of.i64)):
        program = formula(expression.node, 2).program()
        assert Program.decode(program.encode()) == program
        blob.verify(program.encode())


def test_layout_is_that_of_the_document():
    program = Program((T,), (T,), (Constant(0.1, T),), (Instruction("fma", (0, 1, 2), T),), (Output(3, 0, T),))
    wanted = b"OFBC" + struct.pack("<8HI8x", 1, 0, 1, 1, 1, 1, 1, 4, 32 + 8 + 8 + 16 + 8)
    wanted += bytes(8) + struct.pack("<d", 0.1) + struct.pack("<4HB7x", 16, 0, 1, 2, 0) + struct.pack("<2HB3x", 3, 0, 0)
    assert program.encode() == wanted and len(wanted) % 8 == 0


def test_listing():
    x = Expr(input_(0))
    assert formula((of.tanh(x) * 3).node).program().text().splitlines() == [
        "%0 = input 0 : T",
        "%1 = 3.0 : T",
        "%2 = tanh %0 : T",
        "%3 = mul %2, %1 : T",
        "output 0 = %3 : T",
    ]


def test_every_cut_is_refused():
    data = sample().encode()
    for size in range(len(data)):
        with pytest.raises(CorruptFileError, match=r"formula bytecode: (the header is cut off|the size is wrong)"):
            blob.decode(data[:size])
    with pytest.raises(CorruptFileError, match="the size is wrong"):
        blob.decode(data + b"\0")


def test_every_flipped_byte_is_refused_or_means_another_valid_program():
    data = sample().encode()
    refused = 0
    for at in range(len(data)):
        for value in (data[at] ^ 1, data[at] ^ 0x80, 0xFF):
            damaged = data[:at] + bytes([value]) + data[at + 1 :]
            try:
                program = blob.decode(damaged)
            except CorruptFileError:
                refused += 1
                continue
            assert program.encode() == damaged
    assert refused > len(data)


@given(st.binary(max_size=200), st.integers(0, 3))
@settings(max_examples=200 * FACTOR, deadline=None, derandomize=True)
def test_noise_is_refused(noise, kind):
    good = sample().encode()
    data = [noise, good[:4] + noise, good[:32] + noise, good[: len(good) // 2] + noise][kind]
    try:
        program = blob.decode(data)
    except CorruptFileError:
        return
    assert program.encode() == data


def _patched(at, form, *values):
    data = bytearray(sample().encode())
    struct.pack_into(form, data, at, *values)
    return bytes(data)


def _places():
    program = sample()
    types = len(program.inputs) + len(program.attributes) + len(program.constants)
    instructions = HEADER + types + -types % 8 + 8 * len(program.constants)
    return instructions, instructions + INSTRUCTION * len(program.instructions)


INSTRUCTIONS, OUTPUTS = _places()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (_patched(0, "<4s", b"ELF!"), "not a formula program"),
        (_patched(4, "<H", 2), "unknown numerics version"),
        (_patched(6, "<H", 1), "reserved header fields"),
        (_patched(24, "<Q", 1), "reserved header fields"),
        (_patched(8, "<H", 0xFFFF), "count of values"),
        (_patched(18, "<H", 0xFFFF), "count of values"),
        (_patched(20, "<I", 0xFFFFFFFF), "the size is wrong"),
        (_patched(HEADER, "<B", 9), "unknown value type"),
        (_patched(INSTRUCTIONS, "<H", 0x150), "unknown opcode"),
        (_patched(INSTRUCTIONS + 2, "<H", 500), "reads a value that is not defined before it"),
        (_patched(INSTRUCTIONS + 6, "<H", 0), "unused fields"),
        (_patched(INSTRUCTIONS + 15, "<B", 1), "unused fields"),
        (_patched(INSTRUCTIONS + 8, "<B", 3), "wrong types"),
        (_patched(OUTPUTS, "<H", 4000), "output 0 names value 4000"),
        (_patched(OUTPUTS + 2, "<H", 7), "summed to the shape of input 7"),
        (_patched(OUTPUTS + 4, "<B", 5), "output 0 has type f64"),
        (_patched(OUTPUTS + 5, "<B", 1), "reserved fields of output 0"),
    ],
)
def test_words_of_refusals(data, words):
    with pytest.raises(CorruptFileError, match=words):
        blob.decode(data)


def test_limits():
    wide = Program((T,) * 65, (), (), (), (Output(0, None, T),))
    with pytest.raises(SchemaError, match="65 inputs, the limit is 64"):
        wide.encode()
    with pytest.raises(SchemaError, match="17 outputs, the limit is 16"):
        Program((T,), (), (), (), (Output(0, None, T),) * 17).encode()
    with pytest.raises(SchemaError, match="at least one input and one output"):
        Program((T,), (), (), (), ()).encode()
    long = Program((T,), (), (), (Instruction("neg", (0,), T),) * 4096, (Output(0, None, T),))
    with pytest.raises(SchemaError, match="4097 values, the limit is 4096"):
        long.encode()


def test_types_are_checked():
    def program(instruction):
        return Program((T, ValueType.BOOL, ValueType.I32), (), (), (instruction,), (Output(3, None, instruction.type),))

    for wrong in (
        Instruction("add", (0, 1), T),
        Instruction("add", (2, 2), ValueType.I32),
        Instruction("lt", (0, 0), T),
        Instruction("logical_not", (0,), ValueType.BOOL),
        Instruction("select", (0, 0, 0), T),
        Instruction("select", (1, 0, 2), T),
        Instruction("round_half", (2,), ValueType.I32),
        Instruction("isnan", (2,), ValueType.BOOL),
    ):
        with pytest.raises(SchemaError, match=f"{wrong.op}\\) has wrong types"):
            program(wrong).encode()
    for right in (
        Instruction("cast", (2,), T),
        Instruction("select", (1, 2, 2), ValueType.I32),
        Instruction("eq", (2, 2), ValueType.BOOL),
    ):
        assert Program.decode(program(right).encode()) == program(right)


def test_builder_fuses_operators():
    gelu = formula((Expr(input_(0)) * of.sigmoid(1.702 * Expr(input_(0)))).node).program()
    b = ProgramBuilder()
    x, scale = b.input(), b.input("T")
    y = b.op("round_half", b.op("add", b.op("mul", x, scale), b.constant(1.0)))
    (z,) = b.inline(gelu, [y])
    assert b.output(z) == 0 and b.output(b.op("cast", z, type="i32")) == 1
    program = b.build()
    assert [i.op for i in program.instructions] == ["mul", "add", "round_half", "mul", "sigmoid", "mul", "cast"]
    assert Program.decode(program.encode()) == program
    assert [i.op for i in b.build(fma=True).instructions][:2] == ["fma", "round_half"]


def test_builder_keeps_the_roundings_of_what_it_inlines():
    x = Expr(input_(0))
    inner = formula((x * 3).node).program()
    b = ProgramBuilder()
    v = b.input()
    (once,) = b.inline(inner, [v])
    (twice,) = b.inline(inner, [once])
    b.output(twice)
    assert [i.op for i in b.build().instructions] == ["mul", "mul"]


def test_builder_attributes_and_errors():
    program = Program((T,), (T,), (), (Instruction("mul", (0, 1), T),), (Output(2, None, T),))
    b = ProgramBuilder()
    x = b.input()
    (y,) = b.inline(program, [x], attributes=[0.1])
    b.output(y, sum_to=x)
    built = b.build()
    assert built.constants[0].value == pytest.approx(0.1, rel=1e-7) and built.constants[0].value != 0.1
    assert built.outputs[0].sum_to == 0
    with pytest.raises(SchemaError, match=r"gets all of its inputs and attributes(.|\n)*expected: 1 inputs and 1"):
        b.inline(program, [x])
    with pytest.raises(SchemaError, match="sums over dimensions cannot be inlined"):
        b.inline(built, [x])
    with pytest.raises(SchemaError, match="unknown instruction 'gelu'"):
        b.op("gelu", x)
    with pytest.raises(SchemaError, match="add takes 2 operands, got 1"):
        b.op("add", x)
    with pytest.raises(SchemaError, match="needs operands of one floating type"):
        b.op("add", x, b.constant(1, "i32"))
