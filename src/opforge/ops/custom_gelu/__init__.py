"""CustomGELU: the tanh form of GELU."""
