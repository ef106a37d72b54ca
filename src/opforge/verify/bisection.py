"""The first node at which an engine differs: values inside the model are marked as outputs, and halves searched.

Between the inputs, which agree, and an output that differs, the values that cross a cut through the graph tell on
which side the fault is. What crosses the last cut agrees, and the node behind it does not. An engine may fuse nodes,
and marking keeps it from that: the difference may vanish, and then it is said so, with the nodes between which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines import Array
from opforge.errors import ArgumentError, OpforgeError
from opforge.onnx._read import read_model
from opforge.verify._graph import Graph, kind_of
from opforge.verify._marking import Probe
from opforge.verify._measures import explain, measure
from opforge.verify._tolerances import Limit, Tolerances
from opforge.verify.precision import Precision, walk

if TYPE_CHECKING:
    import onnx

__all__ = ["Finding", "first_difference"]

_REPEATED = "it runs any number of times, and the search follows one run"
_CLOSED = {
    **dict.fromkeys(("Loop", "Scan", "SequenceMap"), _REPEATED),
    "If": "the condition is a constant, or the difference vanishes there",
}

WRONG, AMPLIFIES, FUSED, AGREES, FAILED = "wrong", "amplifies", "fused", "agrees", "failed"


@dataclass
class Finding:
    """Where an engine begins to differ.

    Attributes:
        engine: which one.
        reference: from which.
        output: the model's output that differs.
        verdict: ``wrong``: the node differs on inputs that agree, also by itself. ``amplifies``: it makes small errors
            of its inputs large, and by itself it is right. ``fused``: the difference vanishes when values between
            ``nodes`` are marked. ``agrees``: the output does not differ in the first place. ``failed``: an engine
            that ran the model refuses it now; ``detail`` says why.
        nodes: one node, or those between which it is: name, operator, outputs.
        inside: the calls and branches that hold it, outermost first.
        closed: why the search did not go on in the body of the node; "" where it has none.
        inputs: errors of the node's inputs relative to the largest value.
        error: of its output, in the same way.
        own: error of the node by itself on the engine's own inputs; None where it could not be run so.
        detail: in words, where the output differs most.
        origin: for an amplifier, where the error comes from: the node before it with the largest error of its own.
        loads: how many variants of the model the engine loaded.
    """

    engine: str
    reference: str
    output: str
    verdict: str = AGREES
    nodes: list[dict[str, Any]] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    closed: str = ""
    inputs: dict[str, float] = field(default_factory=dict)
    error: float = 0.0
    own: float | None = None
    detail: str = ""
    origin: dict[str, Any] | None = None
    loads: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    def __str__(self) -> str:
        """Say it in a few lines."""
        head = f"{self.engine}, {self.output}: "
        if self.verdict == AGREES:
            return f"{head}agrees with {self.reference} within the tolerance"
        if self.verdict == FAILED:
            return f"{head}the search failed: {self.detail}"
        names = [f"{node['operator']} {node['name']}" for node in self.nodes]
        place = f" (in {' / '.join(self.inside)})" if self.inside else ""
        if self.verdict == FUSED:
            which = f"{names[0]} ... {names[-1]}, {len(names)} nodes" if len(names) > 1 else names[0]
            return (
                f"{head}the difference vanishes when values between {which} are marked as outputs{place}: "
                f"{self.engine} fuses them, and the fault is in what it makes of them"
            )
        given = ", ".join(f"{name} {error:.2g}" for name, error in self.inputs.items()) or "are the model's own"
        lines = [f"{head}{self.reference} and {self.engine} part at {names[0]}{place}: {self.detail}"]
        lines.append(f"  errors relative to the largest value: inputs {given}; output {self.error:.2g}")
        if self.own is not None:
            lines[-1] += f"; by itself on the same inputs {self.own:.2g}"
        if self.closed:
            lines.append(f"  its body was not entered: {self.closed}")
        if self.verdict == AMPLIFIES:
            lines.append("  the node by itself is right: it amplifies what its inputs bring")
            if self.origin:
                lines.append(
                    f"  the largest error of its own before it: {self.origin['operator']} {self.origin['node']}, "
                    f"{self.origin['own']:.2g} ({self.origin['roundings']:.3g} roundings of {self.origin['dtype']})"
                )
        return "\n".join(lines)


def first_difference(
    model: str | Path | onnx.ModelProto,
    inputs: Mapping[str, Any],
    *,
    engine: str,
    reference: str,
    output: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    tolerances: Mapping[str, tuple[float, float]] | None = None,
    threads: int | None = None,
    isolate: bool = False,
    packages: Sequence[str] = (),
    told: Callable[[str], None] = lambda _text: None,
) -> Finding:
    """Search for the first node at which ``engine`` differs from ``reference``.

    Args:
        model: an ONNX model or its file.
        inputs: by name.
        engine: whose fault it is.
        reference: what is right.
        output: one that differs; None = the first of those that do.
        rtol: relative tolerance of values inside and of outputs; None = by dtype and operator.
        atol: absolute tolerance; likewise.
        tolerances: value, operator or dtype -> (relative, absolute).
        threads: of each engine.
        isolate: run engines other than opforge's own in a process each.
        packages: operator packages for those processes.
        told: gets a line on what is being done.

    Raises:
        ArgumentError: the model has no such output.
    """
    graph = Graph(read_model(Path(model)) if isinstance(model, str | Path) else model)
    if output is not None and output not in graph.outputs:
        raise ArgumentError("the model has no such output", where="bisection", expected=graph.outputs, got=output)
    named = {name: Limit(*pair) for name, pair in (tolerances or {}).items()}
    options: dict[str, Any] = {"threads": threads, "isolate": isolate, "packages": packages}
    with Probe(engine, **options) as ours, Probe(reference, **options) as theirs:
        search = _Search(graph, ours, theirs, inputs, Tolerances(rtol, atol, named), told)
        try:
            found = search.whole(output)
        except OpforgeError as problem:
            found = Finding(engine, reference, output or graph.outputs[0], FAILED, detail=str(problem))
        found.loads = ours.loads
        return found


class _Search:
    """One search; the graph becomes another where a call or a branch is opened."""

    def __init__(
        self,
        graph: Graph,
        ours: Probe,
        theirs: Probe,
        inputs: Mapping[str, Any],
        limits: Tolerances,
        told: Callable[[str], None],
    ) -> None:
        self._ours, self._theirs, self._inputs, self._told = ours, theirs, inputs, told
        self._limits = limits
        self._take(graph)

    def _take(self, graph: Graph) -> None:
        self._graph = graph
        self._right: dict[str, Array] = {}
        makers = {name: kind_of(graph.nodes[k]) for name, k in graph.makers.items()}
        self._limits = Tolerances(self._limits.rtol, self._limits.atol, self._limits.named, makers)

    def whole(self, output: str | None) -> Finding:
        graph = self._graph
        wanted = [output] if output else sorted(graph.outputs, key=lambda name: graph.makers.get(name, -1))
        values = self._ours.values(graph, [], self._inputs)
        bad = [name for name in wanted if self._differs(values, name)]
        found = Finding(self._ours.engine, self._theirs.engine, bad[0] if bad else wanted[0])
        if not bad:
            return found
        while True:
            window = self._narrow(found.output)
            step = self._opened(window, found)
            if step is None:
                break
            graph, label = step
            before = self._graph
            self._take(graph)
            try:
                survives = self._differs(self._ours.values(graph, [], self._inputs), found.output)
            except OpforgeError:
                survives = False
            if not survives:  # the engine does otherwise with it in the open: stay outside
                self._take(before)
                break
            found.inside.append(label)
        self._describe(found, window)
        return found

    def _reference(self, names: Sequence[str]) -> dict[str, Array]:
        missing = [name for name in names if name not in self._right]
        if missing:
            self._right.update(self._theirs.values(self._graph, missing, self._inputs))
        return self._right

    def _differs(self, values: Mapping[str, Array], name: str) -> bool:
        """Whether a value is out of its tolerance; of a sequence, whether one of its elements is."""
        right = self._reference([name])
        mine = {key for key in values if key == name or key.startswith(f"{name}[")}
        if mine != {key for key in right if key == name or key.startswith(f"{name}[")}:
            return True
        for key in mine:
            limit = self._limits.of(key, right[key].dtype)
            same = measure(values[key], right[key], rtol=limit.rtol, atol=limit.atol)
            if not same.passed or values[key].dtype != right[key].dtype:
                return True
        return False

    def _narrow(self, output: str) -> list[int]:
        """Return the nodes that are left: one, or several between which every mark makes the difference vanish."""
        graph = self._graph
        window = graph.ancestors([output])
        while len(window) > 1:
            middle = (len(window) - 1) / 2
            for k in sorted(range(len(window) - 1), key=lambda k: abs(k + 0.5 - middle)):
                before, after = window[: k + 1], window[k + 1 :]
                self._told(f"{self._ours.engine}: {len(window)} nodes left, behind {graph.label(before[-1])}")
                bad = self._test(graph.crossing(before, after), output)
                if bad is None:
                    continue
                window = graph.ancestors([bad], before) if bad else after
                break
            else:
                return window
        return window

    def _test(self, names: Sequence[str], output: str) -> str | None:
        """Return the first of the values that differs, "" where none does, None where the marks hide the difference."""
        try:
            values = self._ours.values(self._graph, names, self._inputs)
            self._reference(names)
        except OpforgeError:
            return None  # an engine does not give these values
        for name in names:
            if self._differs(values, name):
                return name
        return "" if self._differs(values, output) else None

    def _opened(self, window: Sequence[int], found: Finding) -> tuple[Graph, str] | None:
        """The graph with the node's own nodes in place of it, where it is a call or an If."""
        if len(window) != 1:
            return None
        graph, index = self._graph, window[0]
        node = graph.nodes[index]
        if graph.is_local_call(index):
            return Graph(graph.inlined()), f"function {kind_of(node)}"
        if node.op_type == "If" and not node.domain:
            condition = node.input[0]
            value = self._inputs.get(condition)
            if value is None:
                if condition not in graph.makers:
                    return None  # a constant, which engines fold themselves
                value = self._reference([condition])[condition]
            taken = bool(np.asarray(value).reshape(-1)[0])
            return Graph(graph.with_branch(index, taken)), f"{graph.label(index)}, {'then' if taken else 'else'} branch"
        return None

    def _describe(self, found: Finding, window: Sequence[int]) -> None:
        graph = self._graph
        found.nodes = [
            {"name": graph.label(k), "operator": kind_of(graph.nodes[k]), "outputs": list(graph.nodes[k].output)}
            for k in window
        ]
        found.verdict = FUSED
        if len(window) > 1:
            return
        index = window[0]
        if any(attribute.HasField("g") or attribute.graphs for attribute in graph.nodes[index].attribute):
            found.closed = _CLOSED.get(graph.nodes[index].op_type, "the difference vanishes there")
        given = [name for name in graph.dynamic(index) if name in graph.makers]
        made = [name for name in graph.nodes[index].output if name]
        try:
            values = {**self._ours.values(graph, [*given, *made], self._inputs), **self._inputs}
            self._reference([*given, *made])
        except OpforgeError:
            return
        bad = [name for name in made if self._differs(values, name)]
        if not bad:
            return
        right = self._right
        found.inputs = {n: _relative(values[n], right[n]) for n in given if n in values and n in right}
        found.verdict = WRONG
        name = bad[0]
        if name not in values or name not in right:
            found.detail = "it gives another number of tensors"
            return
        limit = self._limits.of(name, right[name].dtype)
        found.error = _relative(values[name], right[name])
        found.detail = explain(measure(values[name], right[name], rtol=0, atol=0), values[name], right[name])
        if values[name].dtype != right[name].dtype:
            found.detail = f"dtype {values[name].dtype}, expected {right[name].dtype}; {found.detail}"
        try:
            alone, feeds = graph.alone(index, values)
            expected = self._theirs.run(alone, feeds)[name]
        except (OpforgeError, KeyError):
            return
        found.own = _relative(values[name], expected)
        if measure(values[name], expected, rtol=limit.rtol, atol=limit.atol).passed:
            found.verdict = AMPLIFIES
            self._origin(found, index)

    def _origin(self, found: Finding, index: int) -> None:
        """Measure the errors of its own of every node before, against float64."""
        graph = self._graph
        before = graph.ancestors(graph.dynamic(index))
        names = [name for k in before for name in graph.nodes[k].output if name]
        if not names:
            return
        self._told(f"{self._ours.engine}: the errors of {len(before)} nodes before {graph.label(index)}")
        values = {**self._ours.all_values(graph, names, self._inputs), **self._inputs}
        result = Precision()
        walk(graph, self._inputs, {self._ours.engine: values}, result)
        among = [row for row in result.rows if row.value in set(names)]
        if among:
            found.origin = asdict(max(among, key=lambda row: row.roundings))


def _relative(got: Array, expected: Array) -> float:
    """Largest difference relative to the largest magnitude."""
    difference = measure(got, expected, rtol=0, atol=0)
    if not difference.same_shape or not difference.same_pattern:
        return float("inf")
    finite = np.asarray(expected, np.float64)
    finite = finite[np.isfinite(finite)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    return difference.max_abs / largest if largest else difference.max_abs
