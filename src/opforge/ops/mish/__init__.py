"""Mish: x * tanh(softplus(x))."""
