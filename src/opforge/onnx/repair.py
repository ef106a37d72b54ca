"""Give custom nodes that stand in the default domain the domain of the operator that they mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from opforge.errors import ArgumentError
from opforge.onnx._walk import nodes
from opforge.onnx.functions import complete_model
from opforge.schema import Operator, registry

if TYPE_CHECKING:
    import onnx

__all__ = ["repair_domains"]


def repair_domains(
    model: onnx.ModelProto, operators: Iterable[Operator] | None = None
) -> tuple[onnx.ModelProto, list[str]]:
    """Return a copy of ``model`` with domains put right, and one line per change.

    A node of the default domain whose op_type ONNX does not define, and which exactly one (registered) operator
    has as its name, gets that operator's domain; names, inputs and attributes stay byte for byte.

    Args:
        model: the model.
        operators: candidates; all registered ones when not given.

    Raises:
        ArgumentError: several operators have the name; each is listed.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    candidates = list(operators or registry.operators().values())
    changes = []
    for place in nodes(result):
        node = place.node
        if node.domain not in ("", "ai.onnx") or _defined(node.op_type, place.opsets.get("", 1)):
            continue
        matching = {op.qualified_name: op for op in candidates if op.name == node.op_type}
        if len(matching) > 1:
            raise ArgumentError(
                "several operators have this name",
                where=f"{place.path}, node {node.name!r}",
                got=sorted(matching),
                hint="pass operators=",
            )
        for operator in matching.values():
            node.domain = operator.domain
            changes.append(f"{place.path}, node {node.name!r}: {node.op_type} -> {operator.qualified_name}")
    return complete_model(result) if changes else result, changes


def _defined(op_type: str, opset: int) -> bool:
    import onnx

    try:
        onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    return True
