"""Changes of operators that need no rule in ``_opset_rules``, with the reason: (operator, opset) -> why."""

from __future__ import annotations

__all__ = ["NEUTRAL"]

_DEFAULT = "a new attribute or input whose default is the former meaning"

NEUTRAL: dict[tuple[str, int], str] = {
    **dict.fromkeys(
        [
            ("ArgMax", 12),  # select_last_index
            ("ArgMin", 12),
            ("Attention", 24),  # nonpad_kv_seqlen
            ("AveragePool", 7),  # count_include_pad
            ("AveragePool", 10),  # ceil_mode
            ("AveragePool", 19),  # dilations
            ("Cast", 19),  # saturate: of types that did not exist before
            ("Cast", 24),  # round_mode: likewise
            ("CastLike", 19),
            ("CastLike", 24),
            ("Constant", 11),  # sparse_value
            ("Constant", 12),  # value_int and others
            ("DepthToSpace", 11),  # mode
            ("DequantizeLinear", 13),  # axis: of vectors of scales, which did not exist before
            ("DequantizeLinear", 21),  # block_size
            ("DequantizeLinear", 23),  # output_dtype
            ("GRU", 14),  # layout
            ("GatherND", 12),  # batch_dims
            ("Gemm", 11),  # C may be absent
            ("LSTM", 14),
            ("LpPool", 18),  # dilations, ceil_mode
            ("MaxPool", 8),  # storage_order, second output
            ("MaxPool", 10),  # dilations, ceil_mode
            ("OptionalHasElement", 18),  # the input may be absent
            ("Pad", 18),  # axes
            ("QuantizeLinear", 13),
            ("QuantizeLinear", 19),  # saturate
            ("QuantizeLinear", 21),
            ("QuantizeLinear", 23),  # precision
            ("RNN", 14),
            ("Reshape", 14),  # allowzero
            ("Resize", 13),  # roi and scales may be absent
            ("Resize", 18),  # axes, antialias, keep_aspect_ratio_policy
            ("ScatterElements", 16),  # reduction
            ("ScatterND", 16),
            ("Shape", 15),  # start, end
            ("TopK", 11),  # largest, sorted
        ],
        _DEFAULT,
    ),
}
"""Changes of types, and of documentation without a change of meaning, are not listed."""
