"""An If whose condition is constant is replaced by the nodes of the branch that is taken."""

from __future__ import annotations

import onnx_ir as ir

from opforge.passes import _edit

__all__ = ["ENSURES", "NAME", "REQUIRES", "call"]

NAME = "inline_constant_if"
REQUIRES: tuple[str, ...] = ("constants",)
ENSURES: tuple[str, ...] = ()


def _taken(node: ir.Node) -> ir.Graph | None:
    condition = _edit.array(node.inputs[0])
    if condition is None or condition.size != 1:
        return None
    branch = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return node.attributes[branch].as_graph()


def _rename(value: ir.Value, taken: set[str]) -> None:
    base, count = value.name or "value", 0
    name = base
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    value.name = name
    taken.add(name)


def call(model: ir.Model) -> int:
    """Inline in every graph until no constant condition is left."""
    count = 0
    for node in _edit.nodes(model):
        if not _edit.is_op(node, "If") or node.graph is None:
            continue
        branch, parent = _taken(node), node.graph
        if branch is None or not isinstance(parent, ir.Graph):
            continue
        taken = {v.name for g in _edit.graphs(model) if g is not branch for n in g for v in n.outputs if v.name}
        taken |= {name for g in _edit.graphs(model) if g is not branch for name in g.initializers}
        taken |= {v.name for v in model.graph.inputs if v.name}
        outputs = list(branch.outputs)
        for name, value in list(branch.initializers.items()):
            del branch.initializers[name]
            _rename(value, taken)
            parent.register_initializer(value)
        branch.outputs.clear()
        for inner in list(branch):
            branch.remove(inner)
            for value in inner.outputs:
                _rename(value, taken)
            parent.insert_before(node, inner)
        for old, new in zip(node.outputs, outputs, strict=True):
            _edit.replace_value(old, new)
        parent.remove(node, safe=True)
        count += 1
    return count
