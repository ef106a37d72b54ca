"""Operations and bytes of operators against what their definition says."""

import pytest

from opforge.profiling._flops import bytes_of, flops_of, moves_of

CASES = [
    ("", "MatMul", [(2, 3, 5), (5, 7)], [(2, 3, 7)], {}, 2 * 2 * 3 * 7 * 5),
    ("", "Gemm", [(3, 5), (5, 7), (7,)], [(3, 7)], {}, 2 * 3 * 7 * 5 + 21),
    ("", "Gemm", [(5, 3), (5, 7)], [(3, 7)], {"transA": 1}, 2 * 3 * 7 * 5),
    ("", "Conv", [(1, 4, 8, 8), (6, 4, 3, 3), (6,)], [(1, 6, 8, 8)], {}, 2 * 6 * 64 * 36 + 384),
    ("", "Conv", [(1, 4, 8, 8), (4, 1, 3, 3)], [(1, 4, 8, 8)], {"group": 4}, 2 * 4 * 64 * 9),
    ("", "ConvTranspose", [(1, 4, 8, 8), (4, 6, 2, 2)], [(1, 6, 16, 16)], {}, 2 * 256 * 24),
    ("", "MaxPool", [(1, 4, 8, 8)], [(1, 4, 4, 4)], {"kernel_shape": [2, 2]}, 64 * 4),
    ("", "Softmax", [(3, 4)], [(3, 4)], {}, 60),
    ("", "Add", [(3, 4), (4,)], [(3, 4)], {}, 12),
    ("", "Cast", [(3, 4)], [(3, 4)], {"to": 1}, 0),
    ("", "ReduceSum", [(3, 4)], [(3,)], {}, 12),
    ("", "Transpose", [(3, 4)], [(4, 3)], {}, 0),
    ("", "Einsum", [(3, 4), (4, 5)], [(3, 5)], {"equation": "ij, jk -> ik"}, 2 * 3 * 4 * 5),
    ("", "LSTM", [(7, 2, 5)], [(7, 1, 2, 6)], {"hidden_size": 6}, 7 * 2 * 4 * 6 * (2 * 11 + 5)),
    ("", "Attention", [(2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6)], [(2, 4, 3, 6)], {}, 2 * 4 * 3 * 5 * (16 + 12 + 5)),
    ("opforge", "MatMul", [(3, 5), (5, 7)], [(3, 7)], {"K": 5, "N": 7}, 2 * 3 * 7 * 5),
    ("opforge", "Conv", [(2, 16, 8, 8), (16, 16, 3, 3)], [(2, 16, 8, 8)],
     {"algorithm": "winograd", "kernel_shape": [3, 3], "channels_in": 16, "channels_out": 16}, 2 * 2 * 16 * 64 * 144),
    ("opforge", "Conv", [(1, 16, 8, 8), (16, 1, 3, 3)], [(1, 16, 8, 8)],
     {"algorithm": "depthwise", "kernel_shape": [3, 3], "channels_in": 16, "channels_out": 16}, 2 * 16 * 64 * 9),
    ("opforge", "Conv", [(1, 16, 8, 8), (16, 16, 1, 1)], [(1, 64, 8, 8)],  # into a wider output
     {"algorithm": "direct", "kernel_shape": [1, 1], "channels_in": 16, "channels_out": 16}, 2 * 16 * 64 * 16),
    ("opforge", "Attention", [(2, 3, 96), (2, 3, 96), (2, 3, 96)], [(2, 3, 32)],
     {"num_heads": 4, "head_size": 8, "q_layout": "bshd", "k_layout": "bshd"}, 2 * 4 * 3 * 3 * (16 + 16 + 5)),
    ("", "LRN", [(1, 4, 8, 8)], [(1, 4, 8, 8)], {"size": 5}, 256 * 14),
    ("", "DFT", [(1, 64, 1)], [(1, 64, 2)], {}, 5 * 64 * 6),
    ("", "Det", [(2, 6, 6)], [(2,)], {}, 2 * 216 * 2 // 3),
    ("opforge", "Reorder", [(1, 16, 8, 8)], [(1, 16, 8, 8)], {}, 0),
    ("com.example", "Unknown", [(3,)], [(3,)], {}, None),
    ("", "MatMul", [None, (5, 7)], [(3, 7)], {}, None),
]  # fmt: skip


@pytest.mark.parametrize(("domain", "op", "inputs", "outputs", "attributes", "expected"), CASES)
def test_counts(domain, op, inputs, outputs, attributes, expected) -> None:
    assert flops_of(domain, op, inputs, outputs, attributes) == expected


def test_a_formula_counts_its_instructions() -> None:
    from opforge.expr.blob import encode
    from opforge.expr.nodes import ValueType
    from opforge.expr.program import Instruction, Output, Program

    t = ValueType.T
    steps = (Instruction("mul", (0, 0), t), Instruction("fma", (1, 0, 0), t), Instruction("tanh", (2,), t))
    blob = encode(Program((t,), (), (), steps, (Output(3, None, t),)))
    assert flops_of("opforge", "Formula", [(5, 7)], [(5, 7)], {"bytecode": blob}) == 35 * (1 + 2 + 1)
    assert flops_of("opforge", "MatMul", [(5, 2)], [(5, 7)], {"K": 2, "epilogue": blob}) == 35 * (2 * 2 + 4)


def test_kernels_of_the_runtime_are_counted() -> None:
    """A new kernel gets a row, or is named here: what it computes depends on data, or nobody says how it is counted."""
    from opforge.bin.lowering._generated.kernels import KERNELS
    from opforge.profiling import _flops

    named = {
        "Bernoulli", "GridSample", "MaxRoiPool", "MelWeightMatrix", "Multinomial", "NonMaxSuppression", "RandomNormal",
        "RandomNormalLike", "RandomUniform", "RandomUniformLike", "RoiAlign", "STFT", "TfIdfVectorizer", "Unique",
        "Lookup", "RegexFullMatch", "StringCast", "StringConcat", "StringEqual", "StringNormalizer", "StringSplit",
    }  # fmt: skip
    rows = {"": {**_flops._PRODUCTS, **_flops._ROWS, **_flops._ELEMENTWISE}, "opforge": _flops._MADE}
    kernels = {(domain, op) for domain, op in KERNELS if domain in rows}
    without = {
        op for domain, op in kernels if op not in rows[domain] and not moves_of(f"opforge::{op}" if domain else op)
    }
    assert without == named


def test_a_lookup_reads_what_it_writes() -> None:
    assert bytes_of("Gather", [1_000_000, 64], [512]) == 512 + 64 + 512
    assert bytes_of("MatMul", [100, 200], [50]) == 350


def test_what_only_moves() -> None:
    names = ("Transpose", "opforge::ConcatChannels", "opforge::Reorder", "ReorderInput", "Conv", "opforge::Conv")
    assert [moves_of(name) for name in names] == ["copy", "copy", "layout", "layout", "", ""]
