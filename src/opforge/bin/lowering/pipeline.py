"""The order of graph passes from an imported model to one that can be lowered."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from opforge.bin.lowering import expand, raise_formulas, widen
from opforge.passes import (
    _contract,
    _declared,
    cancel_transposes,
    close_subgraphs,
    decompose_batch_norm,
    decompose_gemm,
    explicit_pads,
    fold_constants,
    fold_scale_shift,
    freeze_inputs,
    infer_shapes,
    inline_constant_if,
    lift_constants,
    lower_dropout,
    lower_scan,
    lower_sequence_map,
    merge_reshapes,
    raise_attention,
    raise_gelu,
    raise_grid_gather,
    raise_hard_swish,
    raise_layer_norm,
    raise_swish,
    remove_dead,
    remove_identities,
    share_subexpressions,
    split_deconvolution,
    static_reshapes,
    subpixel_deconvolution,
    unit_deconvolution,
    upgrade_opset,
)

__all__ = ["PASSES", "prepare"]

IMPORT = (
    freeze_inputs,
    close_subgraphs,
    lift_constants,
    upgrade_opset,
    lower_scan,
    lower_sequence_map,
    lower_dropout,
    infer_shapes,
)
"""Brings a model into the one form that everything behind knows."""

PASSES = tuple(
    _contract.as_pass(module)
    for module in (
        remove_identities,
        fold_constants,  # weights that a custom node computes (fake quantisation) are constants for what follows
        decompose_gemm,
        infer_shapes,
        fold_constants,
        inline_constant_if,
        share_subexpressions,
        infer_shapes,
        cancel_transposes,
        static_reshapes,
        infer_shapes,
        merge_reshapes,
        decompose_batch_norm,
        raise_hard_swish,
        raise_layer_norm,
        raise_grid_gather,
        raise_attention,
        raise_formulas,  # after what the runtime has one kernel for, before what is elementwise anyhow
        raise_gelu,
        fold_scale_shift,
        raise_hard_swish,
        raise_swish,
        unit_deconvolution,
        split_deconvolution,
        subpixel_deconvolution,
        infer_shapes,
        remove_identities,
        cancel_transposes,
        explicit_pads,
        share_subexpressions,
        remove_dead,
        infer_shapes,
    )
)
"""Shapes are inferred anew after every group of passes that makes nodes without them."""


TIDY = (infer_shapes, fold_constants, decompose_gemm, fold_constants, share_subexpressions, remove_dead, infer_shapes)
"""After conversions of half types."""


def prepare(model: ir.Model, *, check: bool = False, formulas: bool = True) -> tuple[dict[str, int], list[str]]:
    """Run all passes on a model without functions; return what each changed, and the conversions of half types.

    Args:
        model: changed in place.
        check: test what each pass requires and promises.
        formulas: look for registered formulas in decomposed form.

    Raises:
        ArgumentError: the model contradicts itself.
    """
    changes: dict[str, int] = {}

    def run(passes: Iterable[_contract.GraphPass]) -> None:
        for graph_pass in passes:
            count = _contract.run(model, graph_pass, check=check)
            if graph_pass.NAME != infer_shapes.NAME:
                changes[graph_pass.NAME] = changes.get(graph_pass.NAME, 0) + count

    said = _declared.declared_outputs(model)
    run(map(_contract.as_pass, IMPORT))
    _declared.require_declared(model, said)
    for _ in range(expand.MAX_ROUNDS):
        expanded = expand.expand_functions(model)
        if not expanded:
            break
        changes["expand_functions"] = changes.get("expand_functions", 0) + expanded
    run(p for p in PASSES if formulas or p.NAME != raise_formulas.NAME)
    conversions = widen.widen_halves(model)
    if conversions:
        run(map(_contract.as_pass, TIDY))
    return {name: count for name, count in changes.items() if count}, conversions
