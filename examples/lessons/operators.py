"""The operators of the lessons, declared once; every framework takes them as they are."""

import opforge as of

__all__ = ["clip_sigmoid", "mod_sigmoid"]


@of.formula("examples.lessons::ClipSigmoid")
def clip_sigmoid(x, lo, hi):
    """Sigmoid between bounds that are learned: where one of them is active, the gradient goes to the bound."""
    return of.clip(of.sigmoid(x), lo, hi)


@of.formula("examples.lessons::ModSigmoid")
def mod_sigmoid(x, threshold):
    """Sigmoid of x - threshold; gradients are summed back to the threshold's shape."""
    return of.sigmoid(x - threshold)
