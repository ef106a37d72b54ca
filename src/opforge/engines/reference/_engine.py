"""The reference engine: every standard node as ONNX's own Python code says, ours as their references say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines._protocol import Array, Availability, NodeTime, TensorInfo, Traits
from opforge.engines.reference._corrections import corrections
from opforge.errors import ArgumentError, MissingOperatorError, UnsupportedError
from opforge.onnx._read import read_model
from opforge.schema import ABSENT, DType, Operator, discover, registry

if TYPE_CHECKING:
    import onnx

__all__ = ["Reference", "make_evaluator"]

_TODAY = 26
"""Opset of a model that imports no default domain."""


class Reference:
    """Runs any model that ONNX's reference evaluator runs, with the operators that are registered."""

    name = "reference"

    def availability(self) -> Availability:
        """Always there: onnx is a dependency."""
        import onnx

        return Availability(True, version=f"onnx {onnx.__version__}")

    def traits(self) -> Traits:
        """NumPy's types; operators of ours by their references."""
        dtypes = ("bool", "float16", "float32", "float64", "bfloat16")
        integers = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
        return Traits(("cpu",), (*dtypes, *integers), True, ("reference",))

    def prepare(self) -> None:
        """Import the evaluator."""
        import onnx.reference  # noqa: F401

    def load(self, model: Path, *, threads: int | None = None) -> _Loaded:
        """Load an ONNX model; it runs on one thread whatever ``threads`` says.

        Raises:
            MissingOperatorError: custom nodes that are neither registered nor have a body; all are listed.
        """
        proto = read_model(Path(model))
        return _Loaded(proto, make_evaluator(proto, str(model)))

    def profile(
        self, model: Path, inputs: Mapping[str, Any], *, runs: int = 10, threads: int | None = None
    ) -> list[NodeTime]:
        """Refuse: the evaluator measures nothing, and what it takes says nothing of an engine."""
        raise UnsupportedError("ONNX's reference evaluator measures no nodes", where="reference")


def make_evaluator(proto: onnx.ModelProto, where: str, *, wide: bool = False) -> Any:  # noqa: ANN401 - untyped in onnx
    """Make ONNX's evaluator of a model, in which registered operators run by their references.

    Args:
        proto: the model; function bodies of registered operators are taken out of it.
        where: for errors.
        wide: whether their floating-point results stay float64, whatever the inputs are.

    Raises:
        MissingOperatorError: custom nodes that are neither registered nor have a body; all are listed.
        UnsupportedError: the evaluator does not know a standard node.
    """
    from onnx.reference import ReferenceEvaluator

    bodies = {(function.domain, function.name) for function in proto.functions}
    kinds = {(n.domain, n.op_type) for g in _graphs(proto) for n in g if n.domain not in ("", "ai.onnx", "ai.onnx.ml")}
    if kinds:
        discover()
    versions = {item.domain: item.version for item in proto.opset_import}
    found = {kind: registry.find(*kind, versions.get(kind[0])) for kind in kinds}
    missing = sorted(f"{d}::{n}" for (d, n), operator in found.items() if operator is None and (d, n) not in bodies)
    if missing:
        raise MissingOperatorError(
            "nodes have neither a registered operator nor a body", where=where, got=", ".join(missing)
        )
    known = {kind: operator for kind, operator in found.items() if operator is not None}
    kept = [function for function in proto.functions if (function.domain, function.name) not in known]
    del proto.functions[:]
    proto.functions.extend(kept)
    _spell_out_defaults(proto)
    classes = [_op_run(operator, wide) for operator in known.values()]
    classes += corrections(versions.get("", versions.get("ai.onnx", _TODAY)))

    class Evaluator(ReferenceEvaluator):  # type: ignore[misc, unused-ignore]
        """It makes itself anew for functions and branches, and would not tell functions about new operators."""

        def __init__(self, part: Any, **options: Any) -> None:  # noqa: ANN401 - a model, graph or function
            super().__init__(part, **{**options, "new_ops": options.get("new_ops") or classes})

    try:
        return Evaluator(proto)
    except Exception as problem:
        raise UnsupportedError(
            "ONNX's reference evaluator cannot run this model", where=where, got=str(problem)
        ) from problem


def _graphs(model: onnx.ModelProto) -> list[Sequence[Any]]:
    """Node lists of the graph, its subgraphs and the functions."""
    found: list[Sequence[Any]] = []
    pending: list[Sequence[Any]] = [model.graph.node, *(function.node for function in model.functions)]
    while pending:
        nodes = pending.pop()
        found.append(nodes)
        for node in nodes:
            for attribute in node.attribute:
                pending += [graph.node for graph in (attribute.g, *attribute.graphs) if graph.node]
    return found


def _spell_out_defaults(model: onnx.ModelProto) -> None:
    """Give calls of functions the attributes that they leave out: the evaluator looks for defaults nowhere."""
    defaults = {(function.domain, function.name): function.attribute_proto for function in model.functions}
    for nodes in _graphs(model):
        for node in nodes:
            given = {attribute.name for attribute in node.attribute}
            node.attribute.extend(d for d in defaults.get((node.domain, node.op_type), ()) if d.name not in given)


def _op_run(operator: Operator, wide: bool) -> type[Any]:
    """A class as onnx.reference wants them, named by operator and domain."""
    from onnx.reference.op_run import OpRun

    def run(self: Any, *inputs: Array | None, **attributes: Any) -> tuple[Array, ...]:  # noqa: ANN401
        del self
        given = {name: value for name, value in attributes.items() if value is not None}
        named = {a.name: given[a.name] for a in operator.signature.attributes if a.name in given}
        if wide:
            with np.errstate(all="ignore"):
                result = operator.reference(*inputs, **named)
            return result if isinstance(result, tuple) else (result,)
        dtypes = [None if value is None else DType.parse(value.dtype) for value in inputs]
        shapes = [ABSENT if value is None else value.shape for value in inputs]
        binding = operator.bind(shapes, dtypes, named)
        with np.errstate(all="ignore"):
            result = operator.reference(*inputs, **named)
            results = result if isinstance(result, tuple) else (result,)
            pairs = zip(results, binding.output_dtypes, strict=True)
            return tuple(value if dtype is None else value.astype(dtype.numpy) for value, dtype in pairs)

    return type(operator.name, (OpRun,), {"op_domain": operator.domain, "_run": run})


class _Loaded:
    """An evaluator with the names of its inputs and outputs."""

    def __init__(self, model: onnx.ModelProto, evaluator: Any) -> None:  # noqa: ANN401 - onnx.reference has no types
        constants = {item.name for item in model.graph.initializer}
        self.inputs = [_info(item) for item in model.graph.input if item.name not in constants]
        self.outputs = [item.name for item in model.graph.output]
        self._evaluator = evaluator

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        for info in self.inputs:
            if not _fits(info, inputs.get(info.name)):
                given = {name: str(getattr(value, "dtype", type(value).__name__)) for name, value in inputs.items()}
                expected = f"{info.name}: {info.dtype}"
                raise ArgumentError(
                    f"the input {info.name!r} is missing or has another dtype",
                    where="reference",
                    expected=expected,
                    got=given,
                )
        try:
            values = self._evaluator.run(None, dict(inputs))
        except Exception as problem:
            got = f"{type(problem).__name__}: {problem}"
            raise ArgumentError(
                "the reference evaluator fails on these inputs", where="reference", got=got
            ) from problem
        return {
            name: value if isinstance(value, list) or value is None else np.asarray(value)
            for name, value in zip(self.outputs, values, strict=True)
        }


def _fits(info: TensorInfo, value: Any) -> bool:  # noqa: ANN401 - an array, a list of them or None
    if value is None:
        return info.kind.startswith("optional")
    items = value if info.kind.endswith("sequence") else [value]
    return isinstance(items, (list, tuple)) and all(getattr(v, "dtype", None) == info.dtype for v in items)


def _info(item: Any) -> TensorInfo:  # noqa: ANN401 - onnx.ValueInfoProto
    held, kind = item.type, "tensor"
    if held.HasField("optional_type"):
        held, kind = held.optional_type.elem_type, "optional"
    if held.HasField("sequence_type"):
        held, kind = held.sequence_type.elem_type, "optional_sequence" if kind == "optional" else "sequence"
    tensor = held.tensor_type
    shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim)
    return TensorInfo(item.name, DType.from_onnx(tensor.elem_type).numpy, shape, kind)
