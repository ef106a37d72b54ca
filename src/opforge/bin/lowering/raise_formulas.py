"""Registered formulas that a model holds in decomposed form become nodes of their operators (see `onnx.raising`)."""

from __future__ import annotations

import onnx_ir as ir

from opforge.onnx.raising import raise_in
from opforge.schema import registry

__all__ = ["ENSURES", "LEAST", "NAME", "REQUIRES", "call"]

NAME = "raise_formulas"
REQUIRES: tuple[str, ...] = ("constants", "shapes")
ENSURES: tuple[str, ...] = ()

LEAST = 4
"""Operations of a formula of nothing but arithmetic: a product and a sum stand everywhere, and serve other passes."""


def call(model: ir.Model) -> int:
    """Replace what is computed once and is no less accurate in the formula's form; only loaded operators count."""
    return raise_in(model, registry.operators().values(), whole=True, least=LEAST)
