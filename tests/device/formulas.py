"""Formula operators for the tests on a device, built ahead with those of the library (make device-build)."""

import opforge as of

__all__ = ["gate"]


@of.formula("test.device::Gate")
def gate(x, w, b, *, slope: float = 0.5):
    """Three inputs that broadcast, an attribute, both kinds of function."""
    return of.where(x > b, of.tanh(x * w) + b, slope * of.erf(x - w))
