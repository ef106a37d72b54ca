"""Write the seed corpus of the loader fuzz target: small valid bins that touch every section and many kernels.

python -m tests.fuzz.seeds FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from opforge.bin.program import GraphRef
from opforge.expr import ProgramBuilder
from tests.unit.bin.programs import Builder

F32 = np.float32


def formula() -> bytes:
    """Return bytecode of 1 + tanh(a) * b."""
    b = ProgramBuilder()
    x, y = b.input(), b.input()
    b.output(b.op("add", b.op("mul", b.op("tanh", x), y), b.constant(1.0)))
    return b.build().encode()


def shapes() -> Builder:
    """Shape arithmetic with symbols, views, a constant."""
    b = Builder()
    x = b.input("x", F32, ["N", "2*N", 4])
    shape = b.node("Shape", [x], np.int64, [3])
    part = b.node("Slice", [shape, b.constant(np.array([0])), b.constant(np.array([2]))], np.int64, [2])
    wanted = b.node("Concat", [part, b.constant(np.array([2, -1]))], np.int64, [4], axis=0)
    y = b.node("Reshape", [x, wanted], F32, ["N", "2*N", 2, 2])
    z = b.node("Transpose", [y], F32, [2, "N", "2*N", 2], perm=[2, 0, 1, 3])
    b.output(b.node("Concat", [z, z], F32, axis=-1), b.node("Pad", [z, b.constant(np.zeros(8, np.int64))], F32))
    return b


def formulas() -> Builder:
    """Bytecode over two broadcast inputs, Where, Cast, integer arithmetic."""
    b = Builder()
    x, y = b.input("x", F32, [2, 3]), b.input("y", F32, [3])
    f = b.node("Formula", [x, y], F32, [2, 3], domain="opforge", since=1, bytecode=formula())
    k = b.node("Cast", [f], np.int64, [2, 3], to=7)
    n = b.node("Add", [k, b.constant(np.array([1, 2, 3]))], np.int64, [2, 3])
    picked = b.node("Gather", [f, b.node("Sub", [n, n], np.int64, [2, 3])], F32, [2, 3, 3])
    b.output(picked, b.node("OneHot", [n, b.constant(np.array(3)), b.constant(np.array([0, 1], F32))], F32, [2, 3, 3]))
    return b


def dynamic() -> Builder:
    """Shapes that depend on data, If and Loop."""
    b = Builder()
    x, condition = b.input("x", F32, [5]), b.input("c", np.bool_, [])
    found = b.node("NonZero", [x], np.int64, [1, None])
    kept = b.node("GatherND", [x, b.node("Transpose", [found], np.int64, [None, 1], perm=[1, 0])], F32, [None])
    branches = {}
    for name, op in (("then_branch", "Identity"), ("else_branch", "Neg")):
        inner = Builder(b.program, name)
        inner.graph.captures = [found]
        inner.output(inner.node(op, [found], np.int64, [1, None]))
        branches[name] = GraphRef(inner.index)
    chosen = b.node("If", [condition], np.int64, [1, None], **branches)
    body = Builder(b.program, "body")
    i, _, total = body.input("i", np.int64, []), body.input("go", np.bool_, []), body.input("t", np.int64, [])
    body.output(body.constant(np.bool_(True)), body.node("Add", [total, i], np.int64, []), i)
    trips, start = b.constant(np.array(3)), b.constant(np.array(1))
    total_out, rows = b.node("Loop", [trips, -1, start], np.int64, outputs=2, body=GraphRef(body.index))
    b.output(kept, chosen, total_out, rows)
    return b


def scatters() -> Builder:
    """Index operators whose bounds come from data in the file."""
    b = Builder()
    x = b.input("x", F32, [3, 4])
    a = b.node("ScatterND", [x, b.constant(np.array([[1], [0]])), b.constant(np.ones((2, 4), F32))], F32, [3, 4])
    c = b.node("ScatterElements", [a, b.constant(np.array([[2, 0, 1]])), b.constant(np.ones((1, 3), F32))], F32, [3, 4])
    d = b.node("GatherElements", [c, b.constant(np.array([[0, 2, 1, 1]]))], F32, [1, 4], axis=0)
    e = b.node("Tile", [d, b.constant(np.array([2, 3]))], F32, [2, 12])
    f = b.node("Expand", [e, b.constant(np.array([2, 2, 12]))], F32, [2, 2, 12])
    parts = b.node("Split", [f, b.constant(np.array([5, 7]))], F32, outputs=2, axis=2)
    b.output(*parts, b.node("MatMul", [x, b.constant(np.ones((4, 2), F32))], F32, [3, 2], since=13))
    return b


SEEDS = {"shapes": shapes, "formulas": formulas, "dynamic": dynamic, "scatters": scatters}


def main(folder: Path) -> None:
    """Write one file per seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in SEEDS.items():
        make().save(folder / f"{name}.bin")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
