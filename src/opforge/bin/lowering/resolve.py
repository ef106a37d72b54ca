"""Which meaning each custom node has: the registered operator, or the body that the model brings along."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from opforge.bin.lowering import coverage, expand
from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.passes import _edit, inline_functions
from opforge.passes._operators import undefined
from opforge.schema import Operator, discover, registry

__all__ = ["missing_operators", "resolve"]

SCHEMA_HASH = "opforge.schema_hash"
"""Metadata of a function body: hash of the declaration that it was made from."""
TOLERANCE = 1e-4
"""By how much a body without a hash may differ from the registered formula on sample inputs."""


def resolve(model: ir.Model, operators: str | None) -> list[str]:
    """Inline bodies, keep calls of registered operators; return warnings.

    Args:
        model: changed in place.
        operators: "registry" or "body" decides where both give a meaning; None demands that they agree.

    Raises:
        ArgumentError: a body disagrees with the registered operator, or ``operators`` is none of the above.
        MissingOperatorError: nodes have neither; all are listed, and standard operators that nothing serves.
        UnsupportedError: only the latter.
    """
    if operators not in (None, "registry", "body"):
        raise ArgumentError(
            "unknown choice", where="compile(operators=)", expected='None, "registry" or "body"', got=repr(operators)
        )
    warnings: list[str] = []
    called = {(n.domain, n.op_type) for n in _edit.nodes(model)}
    called |= {(n.domain, n.op_type) for f in model.functions.values() for n in f}
    if any(domain not in ("", "ai.onnx") for domain, _ in called):
        discover()
    for key, function in model.functions.items():
        operator = registry.find(key[0], key[1], model.opset_imports.get(key[0]))
        if operator is None or (key[0], key[1]) not in called:
            continue
        reason = _disagreement(function, operator)
        if reason is not None and operators is None:
            raise ArgumentError(
                "the model's body and the registered operator disagree",
                where=operator.qualified_name,
                expected="a body made from the same declaration",
                got=reason,
                hint='pass operators="registry" to take the registered operator, operators="body" to take the body',
            )
        if reason is not None:
            warnings.append(f"{operator.qualified_name}: {reason}; taken: the {operators}")
    inline_functions.call(model, bodies=operators == "body")
    expand.expand_domains(model)
    _require_meanings(model)
    return warnings


def _require_meanings(model: ir.Model) -> None:
    """Raise one error that lists all nodes, of subgraphs and inlined bodies too, that cannot be compiled by name."""
    missing, standard = missing_operators(model), coverage.unsupported(model)
    rows = "".join(f"\n    {line}" for line in coverage.describe([*missing, *standard]))
    if missing:
        raise MissingOperatorError(
            "nodes have neither a registered operator nor a body" + (", or no kernel" if standard else ""),
            expected="every custom node registered or defined by a function in the model",
            got=rows,
            hint="load the package with opforge.load(...) or --package, or export the model with bodies",
        )
    if standard:
        raise UnsupportedError(
            "the model has nodes that cannot run", expected="operators of docs/operators.md", got=rows
        )


def onnx_knows(node: ir.Node) -> bool:
    """Tell whether onnx itself has a body for an operator that it tries out."""
    return node.domain == expand.PREVIEW and onnx.defs.has(node.op_type, expand.PREVIEW)


def missing_operators(model: ir.Model) -> list[coverage.Place]:
    """Find each custom node that nothing defines, with the operator that comes nearest."""
    places = []
    for found in undefined(model):
        node = found.node
        if node.domain not in coverage.REASONS and not onnx_knows(node):
            where = node.name or node.outputs[0].name or "?"
            places.append(coverage.Place(found.operator, where, "nothing defines it", found.nearest))
    return places


def _disagreement(function: ir.Function, operator: Operator) -> str | None:
    recorded = function.metadata_props.get(SCHEMA_HASH)
    if recorded is not None:
        if recorded == operator.schema_hash:
            return None
        own = f"{operator.schema_hash[:12]} registered at {operator.declared_at or '?'}"
        return f"hash {recorded[:12]} in the model, {own}"
    return _numeric_disagreement(function, operator) if operator.formula is not None else None


def _numeric_disagreement(function: ir.Function, operator: Operator) -> str | None:
    """Compare a body of unknown origin with the formula on sample inputs."""
    names = [v.name or "" for v in function.inputs]
    if len(names) != len(operator.signature.inputs):
        return f"{len(names)} inputs in the body, {len(operator.signature.inputs)} declared"
    attributes = {a.name: a.default for a in operator.signature.attributes if not a.required}
    if len(attributes) != len(operator.signature.attributes):
        return None  # nothing to evaluate with: the declaration has attributes without defaults
    rng = np.random.default_rng(0)
    feeds = {n: np.concatenate([np.linspace(-6, 6, 49), rng.standard_normal(79)]).astype(np.float32) for n in names}
    outputs = [f"y{k}" for k in range(len(function.outputs))]
    proto = ir.to_proto(function)
    call = onnx.helper.make_node(function.name, names, outputs, domain=function.domain)
    graph = onnx.helper.make_graph(
        [call],
        "body",
        [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [128]) for n in names],
        [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs],
    )
    imports = [*proto.opset_import, onnx.helper.make_opsetid(function.domain, 1)]
    try:
        got = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports, functions=[proto])).run(
            None, feeds
        )
    except Exception as error:
        return f"the body cannot be evaluated for comparison ({type(error).__name__}: {error})"
    want = operator.reference(*[feeds[n].astype(np.float64) for n in names], **attributes)
    for a, b in zip(got, want if isinstance(want, (tuple, list)) else [want], strict=True):
        scale = 1.0 + np.abs(b)
        difference = float(np.max(np.nan_to_num(np.abs(np.asarray(a, np.float64) - b) / scale)))
        if difference > TOLERANCE:
            return f"results differ by {difference:.3g} on sample inputs"
    return None
