"""Where a model loses digits: the error of every node of an engine against a walk through the model in float64.

Two figures tell a node's own error from what it was given. The walk computes every value in float64 from the model's
inputs: the distance of the engine's value from it is the whole error. Then the node alone is computed in float64 from
the values that the engine itself had at its inputs: the distance from that is the node's own error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines import Array
from opforge.errors import OpforgeError
from opforge.onnx._read import read_model
from opforge.verify._double import double_evaluator, widened
from opforge.verify._graph import Graph, kind_of
from opforge.verify._marking import Probe

if TYPE_CHECKING:
    import onnx

__all__ = ["NodeError", "Precision", "precision"]

EPSILONS = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""What rounding to the nearest may change, relative to the value."""


@dataclass(frozen=True)
class NodeError:
    """Errors of one value, each relative to the largest magnitude in it.

    Attributes:
        engine: whose value.
        node: its name.
        operator: ``domain::Name``, or the plain name of a standard operator.
        value: name of the output.
        dtype: of the value.
        error: distance from the float64 walk.
        own: distance from the node in float64 on the engine's own inputs.
        roundings: ``own`` in roundings of the dtype: about 1 is what a correctly rounded result may have.
        inputs: largest error of its inputs.
        carried: error that the node would have without one of its own.
    """

    engine: str
    node: str
    operator: str
    value: str
    dtype: str
    error: float
    own: float
    roundings: float
    inputs: float
    carried: float

    @property
    def amplification(self) -> float | None:
        """How much larger the carried error is than that of the inputs; None where these have none."""
        return self.carried / self.inputs if self.inputs > 0 else None


@dataclass
class Precision:
    """The result of :func:`precision`.

    Attributes:
        rows: one per engine and value, in the order of the model.
        skipped: engines that were left out, and nodes without figures, with the reason.
        changed: engines whose outputs differ from those of the model without marked values, with how far.
    """

    rows: list[NodeError] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)

    def worst(self, count: int, engine: str | None = None) -> list[NodeError]:
        """Return the rows with the largest errors of their own."""
        rows = [row for row in self.rows if engine in (None, row.engine)]
        return sorted(rows, key=lambda row: -row.roundings)[:count]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        rows = [{**asdict(row), "amplification": row.amplification} for row in self.rows]
        return {"rows": rows, "skipped": self.skipped, "changed": self.changed}


def precision(
    model: str | Path | onnx.ModelProto,
    inputs: Mapping[str, Any],
    engines: Sequence[str],
    *,
    threads: int | None = None,
    isolate: bool = False,
    packages: Sequence[str] = (),
) -> Precision:
    """Measure the error of every node of the main graph in each engine; local functions are inlined before.

    Args:
        model: an ONNX model or its file.
        inputs: by name.
        engines: names.
        threads: of each engine.
        isolate: run engines other than opforge's own in a process each.
        packages: operator packages for those processes.
    """
    graph = Graph(read_model(Path(model)) if isinstance(model, str | Path) else model)
    if any(graph.is_local_call(k) for k in range(len(graph.nodes))):
        graph = Graph(graph.inlined())
    names = [name for node in graph.nodes for name in node.output if name]
    result = Precision()
    values: dict[str, dict[str, Array]] = {}
    for engine in engines:
        with Probe(engine, threads=threads, isolate=isolate, packages=packages) as probe:
            try:
                plain = probe.run(graph.model, inputs)
                values[engine] = {**probe.all_values(graph, names, inputs), **inputs}
            except OpforgeError as problem:
                result.skipped[engine] = str(problem)
                continue
        change = max((_distance(values[engine].get(n), plain[n]) for n in plain), default=0.0)
        if change > 0:
            result.changed[engine] = change
    walk(graph, inputs, values, result)
    return result


def walk(
    graph: Graph, inputs: Mapping[str, Any], engines: Mapping[str, Mapping[str, Array]], result: Precision
) -> None:
    """Compute every node in float64, once from exact inputs and once from each engine's, and add the rows."""
    exact: dict[str, Any] = {name: widened(value) for name, value in inputs.items()}
    left = Counter(name for k in range(len(graph.nodes)) for name in graph.dynamic(k))
    errors: dict[tuple[str, str], float] = {}
    for index, node in enumerate(graph.nodes):
        evaluate = _alone(graph, index, exact)
        right = _tried(evaluate, exact, graph.dynamic(index))
        if isinstance(right, str):
            result.skipped[graph.label(index)] = right
        else:
            exact.update(right)
        for engine, values in engines.items():
            made = [name for name in node.output if name in values and name in exact]
            local = _tried(evaluate, values, graph.dynamic(index)) if made else ""
            for name in made:
                row = _row(graph, index, name, engine, values[name], exact[name], local, errors)
                errors[engine, name] = row.error
                result.rows.append(row)
        for name in graph.dynamic(index):
            left[name] -= 1
            if not left[name] and name not in graph.outputs:
                exact.pop(name, None)


def _row(
    graph: Graph,
    index: int,
    name: str,
    engine: str,
    got: Array,
    exact: Array,
    local: Mapping[str, Any] | str,
    errors: Mapping[tuple[str, str], float],
) -> NodeError:
    here = exact if isinstance(local, str) else local[name]
    own = _distance(got, here)
    return NodeError(
        engine,
        graph.label(index),
        kind_of(graph.nodes[index]),
        name,
        got.dtype.name,
        _distance(got, exact),
        own,
        own / EPSILONS.get(got.dtype.name, 1.0),
        max((errors.get((engine, source), 0.0) for source in graph.dynamic(index)), default=0.0),
        _distance(here, exact),
    )


def _alone(
    graph: Graph, index: int, exact: Mapping[str, Any]
) -> Callable[[Mapping[str, Any]], Mapping[str, Any]] | str:
    try:
        return double_evaluator(graph.alone(index, exact)[0])
    except OpforgeError as problem:
        return str(problem).splitlines()[0]


def _tried(
    evaluate: Callable[[Mapping[str, Any]], Mapping[str, Any]] | str, values: Mapping[str, Any], names: Sequence[str]
) -> Mapping[str, Any] | str:
    """Evaluate a node, or say why it cannot be."""
    if isinstance(evaluate, str):
        return evaluate
    missing = [name for name in names if name not in values]
    if missing:
        return f"without the value of {', '.join(missing)}"
    try:
        return evaluate({name: values[name] for name in names})
    except Exception as problem:  # whatever NumPy and onnx's evaluator raise
        return f"{type(problem).__name__}: {problem}".splitlines()[0]


def _distance(got: Any, exact: Any) -> float:  # noqa: ANN401 - arrays, or None for what was not given
    """Largest difference relative to the largest magnitude; infinite where shapes, NaN or infinities differ."""
    if got is None or exact is None or isinstance(exact, list) or np.shape(got) != np.shape(exact):
        return float("inf")
    a, b = np.asarray(got, np.float64), np.asarray(exact, np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    difference, largest = float(np.abs(a[finite] - b[finite]).max()), float(np.abs(b[finite]).max())
    return difference / largest if largest > 0 else (0.0 if difference == 0 else float("inf"))
