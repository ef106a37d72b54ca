"""Two operators in a package of their own."""

from example_ops.segment_sum.op import segment_spread, segment_sum
from example_ops.soft_gate.op import soft_gate

__all__ = ["segment_spread", "segment_sum", "soft_gate"]
