"""What TensorRT's ONNX parser does not know, by its documentation (docs/operators.md of onnx-tensorrt, 10.x)."""

from __future__ import annotations

from typing import Final

__all__ = ["PARSER_ATTRIBUTES", "UNSUPPORTED"]

UNSUPPORTED: Final = frozenset(
    """
    AffineGrid Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow CenterCropPad Col2Im
    Compress ConcatFromSequence ConvInteger DFT Det DynamicQuantizeLinear HammingWindow HannWindow ImageDecoder
    MatMulInteger MaxRoiPool MaxUnpool MelWeightMatrix Multinomial NegativeLogLikelihoodLoss Optional
    OptionalGetElement OptionalHasElement QLinearConv QLinearMatMul RegexFullMatch STFT SequenceAt SequenceConstruct
    SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SoftmaxCrossEntropyLoss SplitToSequence
    StringConcat StringNormalizer StringSplit TfIdfVectorizer Unique
    """.split()
)
"""Operators of ONNX for which the parser says "Plugin not found", as for those that it has never heard of."""

PARSER_ATTRIBUTES: Final = ("plugin_version", "plugin_namespace", "tensorrt_plugin_shape_input_indices")
"""Attributes of a node that the parser reads itself."""
