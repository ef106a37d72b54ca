"""Hostile blobs: refused with a reason, or harmless. Nothing is read outside the blob."""

from __future__ import annotations

import ctypes
import random
import struct

import numpy as np
import pytest

from opforge.build.interpreter import runtime
from opforge.expr.nodes import ValueType
from opforge.expr.program import Constant, Instruction, Output, Program
from tests.unit.bytecode.programs import BOOL, T, interpret_blob, random_program

CORRUPT, UNSUPPORTED = 5, 3
HEAD = 32
# x -> select(x > 0.5, sigmoid(x), x), with one attribute and one constant: types at 32, the constant at 40,
# instructions from 48, the output at 96.
SAMPLE = Program(
    (T, T),
    (T,),
    (Constant(0.5, T),),
    (Instruction("gt", (0, 3), BOOL), Instruction("sigmoid", (1,), T), Instruction("select", (4, 5, 2), T)),
    (Output(6, 1, T),),
)


def verify(blob: bytes, size: int | None = None) -> tuple[int, str]:
    """Verify from memory that ends exactly where the blob does."""
    reason = ctypes.create_string_buffer(256)
    function = runtime().opforge_bytecode_verify
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    status = function(blob, len(blob) if size is None else size, reason, 256)
    return status, reason.value.decode()


def patched(at: int, data: bytes) -> bytes:
    blob = SAMPLE.encode()
    return blob[:at] + data + blob[at + len(data) :]


def test_sample_is_good() -> None:
    assert verify(SAMPLE.encode()) == (0, "")
    assert len(SAMPLE.encode()) == 104


@pytest.mark.parametrize(
    ("at", "data", "words"),
    [
        (0, b"OFBX", "magic is not OFBC"),
        (6, b"\1", "flags are not zero"),
        (8, struct.pack("<H", 0), "n_inputs is not in 1 .. 64"),
        (8, struct.pack("<H", 65), "n_inputs is not in 1 .. 64"),
        (10, struct.pack("<H", 0xFFFF), "n_attributes is above 64"),
        (12, struct.pack("<H", 0xFFFF), "more than 4096 values"),
        (14, struct.pack("<H", 4), "n_values is not the sum"),
        (16, struct.pack("<H", 0), "n_outputs is not in 1 .. 16"),
        (16, struct.pack("<H", 2), "size does not fit the counts"),
        (18, struct.pack("<H", 8), "n_values is not the sum"),
        (20, struct.pack("<I", 0xFFFFFFFF), "size does not fit the counts"),
        (24, b"\1", "reserved bytes in the head"),
        (33, b"\x08", "value 1: type 8 is not known"),
        (36, b"\1", "padding at offset 36 is not zero"),
        (48, struct.pack("<H", 999), "instruction 0: opcode 0x3e7 is not known"),
        (48, struct.pack("<H", 0), "instruction 0: opcode 0x0 is not known"),
        (50, struct.pack("<H", 4), "instruction 0 (gt): operand 0 is value 4, which is not defined before it"),
        (50, struct.pack("<H", 0xFFFF), "operand 0 is value 65535"),
        (54, struct.pack("<H", 0), "instruction 0 (gt): operand 2 must be absent"),
        (56, b"\0", "instruction 0 (gt): types do not fit: expected operands of one type, result bool"),
        (56, b"\x09", "instruction 0: type 9 is not known"),
        (57, b"\1", "instruction 0: reserved byte 9 is not zero"),
        (64 + 2, struct.pack("<H", 4), "instruction 1 (sigmoid): types do not fit: expected one float type throughout"),
        (80 + 2, struct.pack("<H", 5), "instruction 2 (select): types do not fit: expected (bool, X, X) -> X"),
        (96, struct.pack("<H", 7), "output 0: value 7 does not exist"),
        (96, struct.pack("<H", 4), "output 0: its type is not that of value 4"),
        (98, struct.pack("<H", 2), "output 0: it is summed to input 2, which does not exist"),
        (101, b"\1", "output 0: reserved bytes are not zero"),
    ],
)
def test_reasons(at: int, data: bytes, words: str) -> None:
    status, reason = verify(patched(at, data))
    assert status in (CORRUPT, UNSUPPORTED) and words in reason


def test_newer_versions_are_unsupported_not_corrupt() -> None:
    status, reason = verify(patched(4, struct.pack("<H", 2)))
    assert (status, reason) == (UNSUPPORTED, "bytecode: numerics_version is not 1: made by a newer opforge")
    for reserved in (0x100, 0x2FF, 0x300):
        assert verify(patched(48, struct.pack("<H", reserved)))[0] == UNSUPPORTED


def test_only_values_of_type_t_are_summed() -> None:
    program = Program((T,), (), (), (Instruction("cast", (0,), ValueType.F64),), (Output(1, None, ValueType.F64),))
    blob = bytearray(program.encode())
    blob[-6:-4] = struct.pack("<H", 0)
    status, reason = verify(bytes(blob))
    assert status == CORRUPT and "only values of type T are summed, this is f64" in reason


def test_every_cut_is_refused() -> None:
    blob = SAMPLE.encode()
    for size in range(len(blob)):
        assert verify(blob[:size])[0] == CORRUPT
    assert verify(blob + b"\0")[0] == CORRUPT
    assert verify(b"")[0] == CORRUPT


def run_if_accepted(blob: bytes) -> bool:
    if verify(blob)[0] != 0:
        return False
    kernels = interpret_blob(blob, ("f32",))
    if kernels is None:  # valid, but too large for the interpreter
        return False
    inputs = [np.ones((3, 70), kernels.input_dtype(k, "f32")) for k in range(len(kernels.program.inputs))]
    kernels("f32", inputs, [1] * len(kernels.program.attributes))
    return True


def test_flipped_bytes_are_refused_or_run() -> None:
    """A blob that the verifier accepts runs; Python's verifier accepts no fewer."""
    ran = refused = 0
    for program in (SAMPLE, random_program(2), random_program(5)):
        blob = program.encode()
        for at in range(len(blob)):
            for bit in (0x01, 0x10, 0x80, 0xFF):
                damaged = blob[:at] + bytes([blob[at] ^ bit]) + blob[at + 1 :]
                if run_if_accepted(damaged):
                    ran += 1
                else:
                    refused += 1
    assert refused > 1000 and ran > 50


def test_random_bytes_in_the_body() -> None:
    rng = random.Random(1)
    blob = random_program(9, n_instructions=40).encode()
    for _ in range(300):
        damaged = bytearray(blob)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(HEAD, len(damaged) - 1)
            struct.pack_into("<H", damaged, at, rng.choice([0, 1, 5, 7, 16, 48, 144, 160, rng.randrange(65536)]))
        run_if_accepted(bytes(damaged))


def test_many_live_values() -> None:
    """All of 300 values stay alive to the end: the tiles shrink and the result is the same."""
    n = 300
    instructions = [Instruction("add", (0, k), T) for k in range(n)]
    instructions += [Instruction("max", (n + k - 1, n - k), T) for k in range(1, n)]
    program = Program((T,), (), (), tuple(instructions), (Output(2 * n - 1, None, T),))
    x = np.linspace(-1, 1, 1000, dtype=np.float32)
    kernels = interpret_blob(program.encode(), ("f32",))
    values = [x]
    for i in instructions:
        a, b = (values[v] for v in i.args)
        values.append(a + b if i.op == "add" else np.maximum(a, b))
    assert kernels is not None
    np.testing.assert_array_equal(kernels("f32", [x])[0], values[-1])
