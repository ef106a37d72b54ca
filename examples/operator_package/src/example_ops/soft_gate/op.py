"""SoftGate: a smooth gate on a tensor; both inputs learn."""

import opforge as of


@of.formula("example.ops::SoftGate")
def soft_gate(x, gate, *, threshold: float = 0.0, temperature: float = 1.0):
    """x * sigmoid((gate - threshold) / temperature); x and gate broadcast."""
    return x * of.sigmoid((gate - threshold) / temperature)
