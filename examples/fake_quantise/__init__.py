"""FakeQuantise: a straight-through node for quantisation-aware training."""
