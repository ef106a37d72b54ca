"""Random elementwise programs, and running one by the interpreter and as compiled C++."""

from __future__ import annotations

import ctypes
import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from opforge.build import abi
from opforge.build.interpreter import _Description, runtime
from opforge.build.invoke import invoke
from opforge.build.library import LibraryKernel, read_table
from opforge.codegen.cpp import functor
from opforge.expr.nodes import ValueType
from opforge.expr.program import Constant, Instruction, Output, Program
from opforge.schema.dtypes import DType

ROOT = Path(__file__).resolve().parents[3]
STORAGES = {"f32": "float", "f64": "double", "f16": "opforge::f16", "bf16": "opforge::bf16"}
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
VALUE_DTYPES = {
    ValueType.BOOL: np.bool_, ValueType.I32: np.int32, ValueType.I64: np.int64, ValueType.F32: np.float32,
    ValueType.F64: np.float64, ValueType.U8: np.uint8, ValueType.I8: np.int8,
}  # fmt: skip
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
         "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-Wno-unused-but-set-variable",
         "-Wno-unused-variable", f"-I{ROOT}/include"]  # fmt: skip

T, BOOL = ValueType.T, ValueType.BOOL
CHEAP = ["add", "sub", "mul", "div", "min", "max"]
UNARY = [
    "neg", "abs", "sign", "sqrt", "rsqrt", "cbrt", "reciprocal", "square", "relu", "exp", "exp2", "expm1", "log",
    "log2",
    "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "erf", "erfc", "sigmoid", "softplus", "floor", "ceil", "round", "trunc", "round_half",
    "round_f16", "round_bf16",
]  # fmt: skip
BINARY = [*CHEAP, *CHEAP, "pow", "mod", "fmod", "atan2"]
TERNARY = ["fma", "fnma", "clip"]
COMPARE = ["lt", "le", "eq", "ne", "gt", "ge"]
INTEGERS = [ValueType.I32, ValueType.I64, ValueType.U8, ValueType.I8]


def dtype_of(type_: ValueType, storage: str) -> DType:
    return DType.parse(NUMPY[storage] if type_ is T else VALUE_DTYPES[type_])


def random_program(seed: int, n_instructions: int = 12, sums: bool = True) -> Program:
    """A program that uses every kind of instruction, with inputs of type T and now and then of another type."""
    rng = random.Random(seed)
    inputs = [T] * rng.randint(1, 4)
    if rng.random() < 0.4:
        inputs.append(rng.choice([BOOL, *INTEGERS]))
    attributes = [rng.choice([T, T, ValueType.I64]) for _ in range(rng.randint(0, 2))]
    constants = [Constant(rng.choice([0.5, -1.25, 3.0, 0.1, 2.0, -0.0]), T) for _ in range(rng.randint(1, 3))]
    constants.append(Constant(float(rng.randint(-3, 100)), ValueType.I32))
    types = [*inputs, *attributes, *(c.type for c in constants)]
    instructions: list[Instruction] = []

    def pick(type_: ValueType) -> int:
        choices = [k for k, t in enumerate(types) if t is type_]
        return rng.choice(choices[-4:] if rng.random() < 0.7 else choices)

    def add(op: str, args: tuple[int, ...], type_: ValueType) -> None:
        instructions.append(Instruction(op, args, type_))
        types.append(type_)

    while len(instructions) < n_instructions:
        r = rng.random()
        if r < 0.35:
            add(rng.choice(BINARY), (pick(T), pick(T)), T)
        elif r < 0.6:
            add(rng.choice(UNARY), (pick(T),), T)
        elif r < 0.68:
            add(rng.choice(TERNARY), (pick(T), pick(T), pick(T)), T)
        elif r < 0.8:
            add(rng.choice(COMPARE), (pick(T), pick(T)), BOOL)
            add("select", (len(types) - 1, pick(T), pick(T)), T)
        elif r < 0.88:
            add(rng.choice(["isnan", "isinf"]), (pick(T),), BOOL)
            add("logical_not", (pick(BOOL),), BOOL)
            add(rng.choice(["logical_and", "logical_or", "logical_xor"]), (pick(BOOL), pick(BOOL)), BOOL)
            add("select", (pick(BOOL), pick(T), pick(T)), T)
        else:
            integer = rng.choice(INTEGERS)
            source = rng.randrange(len(types))
            add("cast", (source,), integer)
            add(rng.choice(COMPARE), (pick(integer), pick(integer)), BOOL)
            add("select", (len(types) - 1, pick(integer), pick(integer)), integer)
            add("cast", (len(types) - 1,), rng.choice([T, ValueType.F32, ValueType.F64, *INTEGERS]))
            add("cast", (len(types) - 1,), T)
            if BOOL in types:
                add(rng.choice(COMPARE), (pick(BOOL), pick(BOOL)), BOOL)
    ones = [k for k, t in enumerate(types) if t is T]
    outputs = [Output(ones[-1], None, T)]
    if rng.random() < 0.6:
        outputs.append(Output(rng.choice(ones), rng.randrange(len(inputs)) if sums else None, T))
    if rng.random() < 0.3:
        k = rng.randrange(len(types))
        outputs.append(Output(k, None, types[k]))
    return Program(tuple(inputs), tuple(attributes), tuple(constants), tuple(instructions), tuple(outputs))


@dataclass
class Kernels:
    """Kernels of one program by storage name, and what keeps them alive."""

    program: Program
    kernels: dict[str, LibraryKernel]
    kept: object = None

    def input_dtype(self, k: int, storage: str) -> np.dtype:
        return dtype_of(self.program.inputs[k], storage).numpy

    def __call__(self, storage, inputs, attributes=(), wanted=None):
        """Run on arrays; outputs that are not wanted come back as None."""
        shape = np.broadcast_shapes(*(a.shape for a in inputs))
        outputs = []
        for k, o in enumerate(self.program.outputs):
            want = wanted is None or k in wanted
            to = shape if o.sum_to is None else inputs[o.sum_to].shape
            outputs.append([(to, dtype_of(o.type, storage))] if want else [])
        kinds = [
            ("int" if t is not T else "float", v) for t, v in zip(self.program.attributes, attributes, strict=True)
        ]
        flat = invoke(self.kernels[storage], [[a] for a in inputs], outputs, kinds, "program")
        rest = iter(flat)
        return [next(rest) if group else None for group in outputs]


def interpret_blob(blob: bytes, storages: tuple[str, ...]) -> Kernels | None:
    """Kernels of a blob, None where the interpreter refuses it."""
    function = runtime().opforge_interpreter_library
    function.restype = ctypes.c_void_p
    function.argtypes = None
    dtypes = [DType.parse(NUMPY[s]) for s in storages]
    array = (abi.DType * len(dtypes))(*[abi.DType(d.code, d.bits, 1) for d in dtypes])
    row = _Description(ctypes.sizeof(_Description), abi.ABI, b"t", b"P", 1, 0, b"", b"", b"none", b"", b"", blob,
                       len(blob), array, len(dtypes))  # fmt: skip
    reason = ctypes.create_string_buffer(512)
    address = function(ctypes.byref(row), ctypes.c_int32(1), b"t", b"1", b"", reason, ctypes.c_size_t(512))
    if not address:
        assert b"too many values live at once" in reason.value, reason.value
        return None
    kernels = read_table(address).operators["t::P:1"].kernels
    return Kernels(Program.decode(blob), dict(zip(storages, kernels, strict=True)))


def interpreted(program: Program, storages: tuple[str, ...] = tuple(STORAGES)) -> Kernels:
    kernels = interpret_blob(program.encode(), storages)
    assert kernels is not None
    return kernels


def compile_programs(
    programs: list[Program], folder: Path, flags: list[str], storages=tuple(STORAGES)
) -> list[Kernels]:
    """One shared object with the generated kernels of all programs."""
    lines = ['#include "opforge/detail/elementwise.h"', "namespace vm = opforge::vm;", "namespace {"]
    for k, program in enumerate(programs):
        lines += functor(f"P{k}", program)
    lines.append("}")
    arguments = "opforge_context* c, const opforge_arguments* i, const opforge_arguments* o, const opforge_attribute* a"
    for k in range(len(programs)):
        for name in storages:
            lines.append(f'extern "C" opforge_status p{k}_{name}({arguments}) {{')
            lines.append(f"  return opforge::elementwise<P{k}, {STORAGES[name]}>(c, i, o, a); }}")
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / "programs.cpp", folder / "programs.so"
    source.write_text("\n".join(lines))
    done = subprocess.run(["g++", *FLAGS, *flags, str(source), "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    shared = ctypes.CDLL(str(target))
    result = []
    for k, program in enumerate(programs):
        kernels = {}
        for name in storages:
            run = ctypes.cast(getattr(shared, f"p{k}_{name}"), ctypes.c_void_p).value
            d = DType.parse(NUMPY[name])
            kernels[name] = LibraryKernel(
                device_type=1, flags=abi.KERNEL_STRIDED, dtypes=((d.code, d.bits),), alignment=0, run=run, data=0,
                inplace=(), address=0)  # fmt: skip
        result.append(Kernels(program, kernels, shared))
    return result


def random_array(rng: np.random.Generator, type_: ValueType, storage: str, shape: tuple[int, ...]) -> np.ndarray:
    """Values with all the special ones among them."""
    if type_ is BOOL:
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    if type_ in INTEGERS:
        info = np.iinfo(VALUE_DTYPES[type_])
        return np.asarray(rng.integers(info.min, info.max, shape, dtype=VALUE_DTYPES[type_], endpoint=True))
    x = np.asarray(rng.standard_normal(shape) * np.exp(rng.uniform(-3, 3, shape)))  # an array even if 0-d
    x = x.astype(NUMPY[storage] if type_ is T else np.float32)
    flat = x.reshape(-1)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-44, 1, -1, 88.9, -104, 3e38, 65504, 0.5, 1e-7])
    if flat.size:
        where = rng.integers(0, flat.size, max(1, flat.size // 16))
        with np.errstate(over="ignore"):
            flat[where] = rng.choice(special, where.size).astype(x.dtype)
    return x


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, except that any NaN equals any NaN."""
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    words = {2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    equal = np.ascontiguousarray(a).view(words) == np.ascontiguousarray(b).view(words)
    return bool(np.all(equal | (np.isnan(a) & np.isnan(b))))
