"""Which engine runs which operator in which dtype: each is tried, and the reason kept where it does not."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines import Engine, OperatorWriter
from opforge.errors import OpforgeError, UnsupportedError
from opforge.onnx import complete_model
from opforge.onnx.one_node import node_attribute
from opforge.schema import ABSENT, DType, Operator
from opforge.verify._engines import engines
from opforge.verify._rows import choices, held, label
from opforge.verify.cases import arrays, cases_of
from opforge.verify.hosts import Host

if TYPE_CHECKING:
    import onnx

__all__ = ["Support", "case_model", "engine_host", "engine_support"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Support:
    """Whether an engine computes an operator in these dtypes, within the operator's tolerance; else why not."""

    operator: str
    engine: str
    dtypes: str
    passed: bool
    reason: str = ""


def case_model(
    operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any]
) -> tuple[onnx.ModelProto, dict[str, Array], tuple[DType, ...]]:
    """Make a model of one node for these inputs, with open dimensions.

    NumPy has no bfloat16 that engines take: such inputs and outputs are float32, with casts around the node.

    Returns:
        The model, its inputs by name, and the dtypes that its outputs have before a last cast.
    """
    from onnx import TensorProto, helper

    nodes, infos, names = [], [], []
    feeds: dict[str, Array] = {}
    for k, array in enumerate(inputs):
        if array is None:
            names.append("")
            continue
        dtype = DType.parse(array.dtype)
        wide = dtype.name == "bf16"
        name = f"x{k}"
        dims = [f"d{k}_{axis}" for axis in range(array.ndim)]
        infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT if wide else dtype.onnx, dims))
        feeds[name] = np.array(array, np.float32 if wide else None, order="C")
        if wide:
            nodes.append(helper.make_node("Cast", [name], [f"c{k}"], to=dtype.onnx))
        names.append(f"c{k}" if wide else name)
    while names and not names[-1]:
        names.pop()
    given = operator.coerce(dict(attributes))
    shapes = [ABSENT if a is None else a.shape for a in inputs]
    binding = operator.bind(shapes, [None if a is None else DType.parse(a.dtype) for a in inputs], given)
    dtypes = tuple(dtype for dtype in binding.output_dtypes if dtype is not None)
    wide_outputs = [dtype.name == "bf16" for dtype in dtypes]
    made = [f"y{k}" if wide else f"z{k}" for k, wide in enumerate(wide_outputs)]
    node = helper.make_node(operator.name, names, made, domain=operator.domain)
    node.attribute.extend(node_attribute(a.name, a.kind, given[a.name]) for a in operator.signature.attributes)
    nodes.append(node)
    outputs = []
    for k, (dtype, wide) in enumerate(zip(dtypes, wide_outputs, strict=True)):
        if wide:
            nodes.append(helper.make_node("Cast", [f"y{k}"], [f"z{k}"], to=TensorProto.FLOAT))
        outputs.append(helper.make_tensor_value_info(f"z{k}", TensorProto.FLOAT if wide else dtype.onnx, None))
    graph = helper.make_graph(nodes, "case", infos, outputs)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(operator.domain, operator.since_version)]
    return complete_model(helper.make_model(graph, opset_imports=imports, ir_version=10)), feeds, dtypes


def _compute(
    engine: Engine, operator: Operator, inputs: Sequence[Array | None], attributes: Mapping[str, Any]
) -> list[Array]:
    from opforge.onnx._write import write_model

    if isinstance(engine, OperatorWriter):
        with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
            path = Path(folder) / f"case{engine.traits().suffixes[0]}"
            feeds = engine.write_operator(operator, inputs, attributes, path)
            return list(engine.load(path, threads=1).run(feeds).values())
    model, feeds, dtypes = case_model(operator, inputs, attributes)
    with tempfile.TemporaryDirectory(prefix="opforge-") as folder:
        path = Path(folder) / "case.onnx"
        write_model(model, path)
        results = engine.load(path, threads=1).run(feeds)
    return [results[f"z{k}"].astype(dtype.numpy) for k, dtype in enumerate(dtypes)]


def _no_gradients(
    operator: Operator, inputs: Sequence[Array | None], grads: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Array | None]:
    raise UnsupportedError("an engine computes no gradients", where=operator.qualified_name)


def engine_host(engine: Engine) -> Host:
    """Return an engine as a host of the checks: it computes models of one node, and no gradients."""
    return Host(engine.name, partial(_compute, engine), _no_gradients)


def engine_support(operators: Sequence[Operator], names: Sequence[str]) -> list[Support]:
    """Try every operator in every choice of dtypes in each engine, on its first case with elements.

    An engine that is not here gives one row per operator, with the reason and how to get it.
    """
    found: list[Support] = []
    known = engines()
    for name in names:
        state = known[name].availability()
        if state.ok:
            known[name].prepare()
        for operator in operators:
            if not state.ok:
                found.append(Support(operator.qualified_name, name, "", False, f"{state.reason}; {state.hint}"))
                continue
            host = engine_host(known[name])
            found += [_try(operator, host, types) for types in choices(operator)]
    return found


def _try(operator: Operator, host: Host, types: Mapping[str, DType]) -> Support:
    for case in cases_of(operator):
        inputs = arrays(operator, case, types)
        if all(value is None or value.size for value in inputs):
            break
    try:
        row = held(operator, host, case, case.name, inputs, types, "engine")
        return Support(operator.qualified_name, host.name, label(types), row.passed, row.detail)
    except OpforgeError as problem:
        return Support(operator.qualified_name, host.name, label(types), False, str(problem))
