"""SoftGate: a smooth gate on a tensor."""
