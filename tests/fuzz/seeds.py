"""Write the seed corpus of the fuzz targets.

Small valid bins that touch every section and many kernels, and what stands behind the launcher of CUDA kernels.

python -m tests.fuzz.seeds FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from opforge.bin.packing import pack_conv16, pack_depthwise16, pack_first16, pack_matmul16
from opforge.bin.program import GraphRef, Layout
from opforge.build.cuda.payload import BuiltKernel, payload
from opforge.codegen.cuda import formula_kernels
from opforge.codegen.units import dtype_choices
from opforge.expr import ProgramBuilder
from tests.stub_nvrtc import product
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


def plain() -> Builder:
    """Arithmetic kernels of ONNX operators on plain tensors."""
    b = Builder()
    x = b.input("x", F32, [1, 3, 6, 6])
    w = b.constant(np.full((4, 3, 3, 3), 0.1, F32))
    c = b.node("Conv", [x, w, -1], F32, [1, 4, 6, 6], since=22, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    pooled = b.node("MaxPool", [c], F32, [1, 4, 3, 3], since=22, kernel_shape=[2, 2], strides=[2, 2])
    mean = b.node("AveragePool", [c], F32, [1, 4, 3, 3], since=22, kernel_shape=[2, 2], strides=[2, 2])
    norm = b.node(
        "LayerNormalization", [pooled, b.constant(np.ones(3, F32)), b.constant(np.zeros(3, F32))], F32, since=17
    )
    soft = b.node("Softmax", [norm], F32, [1, 4, 3, 3], since=13, axis=-1)
    total = b.node("ReduceSum", [soft, b.constant(np.array([1]))], F32, [1, 1, 3, 3], since=13)
    values, order = b.node("TopK", [mean, b.constant(np.array([2]))], F32, [1, 4, 3, 2], since=24, outputs=2)
    b.program.values[order].dtype = 7
    sums = b.node("CumSum", [mean, b.constant(np.array(2))], F32, [1, 4, 3, 3], since=14)
    large = b.node(
        "Resize", [sums, -1, b.constant(np.array([1, 1, 2, 2], F32))], F32, [1, 4, 6, 6], since=19, mode="linear"
    )
    deep = b.node("DepthToSpace", [mean], F32, [1, 1, 6, 6], since=13, blocksize=2)
    best = b.node("ArgMax", [soft], np.int64, [1, 1, 3, 3], since=13, axis=1)
    flat = b.node("Reshape", [pooled, b.constant(np.array([4, 9]))], F32, [4, 9])
    gemm = b.node("Gemm", [flat, b.constant(np.ones((9, 5), F32)), b.constant(np.ones(5, F32))], F32, [4, 5], since=13)
    b.output(total, values, order, large, deep, best, gemm)
    return b


def blocked() -> Builder:
    """Kernels of the compiler: packed weights, blocked layouts with halos, an epilogue, attention."""
    b = Builder()
    halo = Layout("c16", (1, 1, 1, 1))

    def made(op: str, inputs: list[int], shape: list[Any], layout: Layout | None = None, **attributes: Any) -> int:
        out = b.node(op, inputs, F32, shape, domain="opforge", since=1, **attributes)
        b.program.values[out].layout = layout or Layout()
        return int(out)

    x = b.input("x", F32, [1, 3, 8, 8])
    start = b.constant(pack_first16(np.full((20, 3, 3, 3), 0.1, F32)), packing="first16", shape=[20, 3, 3, 3])
    bias = b.constant(np.arange(20, dtype=F32))
    size = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1], "channels_out": 20}
    shape = [1, 20, 8, 8]
    a = made("Conv", [x, start, bias], shape, halo, algorithm="first", channels_in=3, **size)
    each = b.constant(pack_depthwise16(np.full((20, 1, 3, 3), 0.1, F32)), packing="depthwise16", shape=[20, 1, 3, 3])
    a = made(
        "Conv", [a, each, bias], shape, halo, algorithm="depthwise", channels_in=20, activation="hardswish", **size
    )
    dense = b.constant(pack_conv16(np.full((20, 20, 3, 3), 0.01, F32)), packing="conv16", shape=[20, 20, 3, 3])
    a = made("Conv", [a, dense, bias, a], shape, halo, algorithm="direct", channels_in=20, activation="relu", **size)
    small = made(
        "Pool", [a], [1, 20, 4, 4], Layout("c16"), mode="max", kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4
    )
    large = made("Resize", [small], shape, halo, scales_h=2, scales_w=2, mode="nearest")
    both = made("ConcatChannels", [a, large], [1, 40, 8, 8], Layout("c16"))
    mean = made("GlobalAveragePool", [both], [1, 40, 1, 1], Layout("c16"))
    row = b.node("Reshape", [made("Reorder", [mean], [1, 40, 1, 1]), b.constant(np.array([1, 40]))], F32, [1, 40])
    w = b.constant(pack_matmul16(np.full((40, 24), 0.1, F32)), packing="matmul16", shape=[40, 24])
    extra = b.constant(np.ones(24, F32))
    y = made("MatMul", [row, w, extra, extra], [1, 24], None, K=40, N=24, epilogue=formula())
    heads = b.node("Reshape", [y, b.constant(np.array([1, 3, 8]))], F32, [1, 3, 8])
    layouts = dict.fromkeys(("q_layout", "k_layout", "v_layout", "o_layout"), "bshd")
    attended = made("Attention", [heads, heads, heads], [1, 3, 8], None, num_heads=2, head_size=4, **layouts)
    b.output(attended, made("Reorder", [both], [1, 40, 8, 8]), b.node("Identity", [y], F32, [1, 24]))
    return b


def control() -> Builder:
    """Branches and loops within each other: captures at every depth, scan outputs, a value that only passes through."""
    b = Builder()
    x, c = b.input("x", F32, [5]), b.input("c", np.bool_, [])
    three, yes = b.constant(np.array(3)), b.constant(np.bool_(True))
    body = Builder(b.program, "body")
    body.graph.captures = [x, c]
    i, go, total = body.input("i", np.int64, []), body.input("go", np.bool_, []), body.input("t", F32, [5])
    yes_graph, no_graph = Builder(b.program, "yes"), Builder(b.program, "no")
    yes_graph.graph.captures, no_graph.graph.captures = [total, x], [x, i]
    f = yes_graph.node("Formula", [total, x], F32, [5], domain="opforge", since=1, bytecode=formula())
    yes_graph.output(f)
    inner = Builder(b.program, "inner")
    inner.graph.captures = [i]
    inner.input("j", np.int64, [])
    keep, row = inner.input("keep", np.bool_, []), inner.input("r", F32, [5])
    less = inner.node("Less", [i, inner.constant(np.array(1))], np.bool_, [])
    inner.output(less, row)
    looped = no_graph.node("Loop", [three, -1, x], F32, [5], body=GraphRef(inner.index))
    no_graph.output(looped)
    branches = {"then_branch": GraphRef(yes_graph.index), "else_branch": GraphRef(no_graph.index)}
    chosen = body.node("If", [c], F32, [5], **branches)
    joined = body.node("Concat", [chosen, total], F32, [10], axis=0)
    body.output(go, chosen, joined)
    last, rows = b.node("Loop", [three, yes, x], F32, [5], outputs=2, body=GraphRef(body.index))
    b.program.values[rows].shape = [None, 10]
    del keep
    b.output(last, rows)
    return b


def values() -> Builder:
    """Sequences and optionals: made, changed, taken apart, carried by a loop."""
    b = Builder()
    x, s, k = b.input("x", F32, [5]), b.input("s", F32, [None]), b.input("k", np.int64, [])
    o = b.input("o", F32, [5])
    found: dict[int, str] = {s: "sequence", o: "optional"}

    def sequence(op: str, inputs: list[int], **attributes: Any) -> int:
        out = int(b.node(op, inputs, F32, [None], **attributes))
        found[out] = "sequence"
        return out

    parts = sequence("SplitToSequence", [x, b.constant(np.array(2))], axis=0)
    longer = sequence("SequenceInsert", [parts, x, k])
    shorter = sequence("SequenceErase", [longer, b.constant(np.array(-1))])
    both = sequence("SequenceConstruct", [x, x])
    body = Builder(b.program, "body")
    body.graph.captures = [x]
    body.input("i", np.int64, [])
    go, t = body.input("go", np.bool_, []), body.input("t", F32, [None])
    grown = body.node("SequenceInsert", [t, x], F32, [None])
    found.update({t: "sequence", grown: "sequence"})
    body.output(go, grown)
    looped = sequence("Loop", [b.constant(np.array(2)), -1, shorter], body=GraphRef(body.index))
    stacked = b.node("ConcatFromSequence", [both], F32, [None, None], axis=-1, new_axis=1)
    picked = b.node("SequenceAt", [s, k], F32, [None])
    held = b.node("Optional", [x], F32, [5])
    passed = b.node("Identity", [o], F32, [5])
    has = b.node("OptionalHasElement", [o], np.bool_, [])
    taken = b.node("OptionalGetElement", [held], F32, [5])
    count = b.node("SequenceLength", [looped], np.int64, [])
    empty = sequence("SequenceEmpty", [])
    found.update({held: "optional", passed: "optional"})
    for index, kind in found.items():
        b.program.values[index].kind = kind
    b.output(looped, stacked, picked, passed, has, taken, count, empty)
    return b


def kernels() -> bytes:
    """Return a table of CUDA kernels, as it stands behind the launcher, without the trailer."""
    images = {"sm_90": b"machine code", "compute_90": b"PTX\0"}
    rows = []
    for operator in (product, product.gradient_operator):
        made = [(dtypes, formula_kernels(operator, dtypes)) for dtypes in dtype_choices(operator)]
        rows.append(
            (operator, [BuiltKernel(d, k, tuple(f"k{n}" for n in range(len(k.names))), images) for d, k in made])
        )
    return payload(("id", "1.0", "content", "build"), rows, tuple(images))[:-24]


def strings() -> Builder:
    """Strings: constants, what moves, makes and reads them, in a sequence too."""
    b = Builder()
    text = np.dtype(object)
    b.program.texts += ["a", "é b", "1.5"]
    x, n = b.input("x", text, ["N", 2]), b.input("n", F32, ["N"])

    def constant(*numbers: int) -> int:
        index = b.constant(np.array(numbers, np.uint32))
        b.program.values[index].dtype = 8
        return index

    keys, made = constant(1, 2, 0), {"domain": "opforge", "since": 1}
    joined = b.node("StringConcat", [x, constant(1)], text, ["N", 2])
    moved = b.node("Transpose", [b.node("Concat", [x, joined], text, None, axis=0)], text, None, perm=[1, 0])
    picked = b.node("Gather", [keys, b.node("Lookup", [x, constant(1, 3)], np.int64, None, **made)], text, None)
    same = b.node("StringEqual", [picked, x], np.bool_, None, **made)
    numbers = b.node("StringCast", [b.node("StringCast", [n], text, ["N"], **made)], F32, ["N"], **made)
    pieces = b.node("StringSplit", [moved], text, None, since=20, maxsplit=1)
    flat = b.node("Reshape", [moved, b.constant(np.array([-1]))], text, [None])
    changed = b.node("StringNormalizer", [flat], text, [None], case_change_action="UPPER", stopwords=["a", "É b"])
    pattern = r"(?i)(a|\d+\.?)*[^b-x]{0,3}$"
    matched = b.node("RegexFullMatch", [changed], np.bool_, [None], since=20, pattern=pattern)
    kept = b.node("Where", [same, x, picked], text, None)
    sequence = b.node("SequenceConstruct", [kept, moved], text, None)
    b.program.values[sequence].kind = "sequence"
    b.output(pieces, matched, numbers, kept, sequence)
    return b


SEEDS = {
    "plain": plain,
    "blocked": blocked,
    "shapes": shapes,
    "formulas": formulas,
    "dynamic": dynamic,
    "scatters": scatters,
    "control": control,
    "values": values,
    "strings": strings,
}


def main(folder: Path) -> None:
    """Write one file per seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in SEEDS.items():
        make().save(folder / f"{name}.bin")
    (folder / "kernels").write_bytes(kernels())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
