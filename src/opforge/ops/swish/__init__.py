"""Swish: x * sigmoid(beta * x)."""
