"""Simplify a model: everything that follows from constants and shapes is done now, custom nodes included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opforge.errors import InternalError

if TYPE_CHECKING:
    import onnx

__all__ = ["PASSES", "drop_unused", "simplify"]

PASSES = (
    "inline_constant_if",
    "remove_identities",
    "fold_constants",
    "static_reshapes",
    "merge_reshapes",
    "cancel_transposes",
    "fuse_batch_norm",
    "share_subexpressions",
    "remove_dead",
)
"""Run in this order, again and again until nothing changes."""

_MAX_ROUNDS = 32


def simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a simplified copy of ``model`` with the same inputs, outputs and numbers (to rounding).

    Constants are folded (pure custom nodes by opforge's own kernels), shape arithmetic over known dimensions becomes
    constant through custom nodes as well, constant branches are inlined, reshapes and transposes cancel, batch
    normalisation goes into convolutions, equal nodes are shared unless they are impure, dead ones go. Custom
    nodes keep domain, attributes and absent inputs. Nodes that nobody registered are left exactly as they are.
    Opset imports that nothing uses any more are dropped.
    """
    from importlib import import_module

    import onnx_ir as ir

    from opforge.passes import _contract, _well_formed

    graph_model = _well_formed.from_proto(model)
    functions = dict(graph_model.functions)
    graph_model.functions.clear()  # calls stay calls; their bodies come back at the end
    modules: dict[str, Any] = {
        name: import_module(f"opforge.passes.{name}")
        for name in ("close_subgraphs", "lift_constants", "infer_shapes", *PASSES)
    }
    _contract.run(graph_model, modules["close_subgraphs"])
    _contract.run(graph_model, modules["lift_constants"])
    for _ in range(_MAX_ROUNDS):
        changes = 0
        for name in PASSES:
            _contract.run(graph_model, modules["infer_shapes"])
            changes += _contract.run(graph_model, modules[name])
        if not changes:
            break
    else:
        raise InternalError("simplification does not come to an end", where="simplify", got=f"{_MAX_ROUNDS} rounds")
    graph_model.functions.update(functions)
    result = ir.to_proto(graph_model)
    drop_unused(result)
    return result


def drop_unused(model: onnx.ModelProto) -> None:
    """Drop, in place, opset imports and functions that nothing uses."""
    from opforge.onnx._walk import nodes

    while True:
        called = {(place.node.domain, place.node.op_type) for place in nodes(model)}
        kept = [f for f in model.functions if (f.domain, f.name) in called]
        if len(kept) == len(model.functions):
            break
        del model.functions[:]
        model.functions.extend(kept)
    used = (
        {place.node.domain or "ai.onnx" for place in nodes(model)} | {f.domain for f in model.functions} | {"ai.onnx"}
    )
    imports = [item for item in model.opset_import if (item.domain or "ai.onnx") in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)
