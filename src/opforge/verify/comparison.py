"""Run the same inputs through several engines and say how far their outputs are apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opforge.engines import Array
from opforge.errors import ArgumentError, CheckFailure
from opforge.verify._engines import choose_engines, reasons, require_known
from opforge.verify._inputs import model_path
from opforge.verify._measures import Difference, Ulps, explain, measure, ulps
from opforge.verify._runs import Engines, Runner, run_sets
from opforge.verify._sets import Source
from opforge.verify._tolerances import Limit, Tolerances

if TYPE_CHECKING:
    import onnx

__all__ = ["Comparison", "Row", "compare"]


@dataclass(frozen=True)
class Row:
    """One output of one engine against the reference engine; of several input sets, the worst.

    Attributes:
        engine: whose output.
        output: its name.
        difference: how far it is from the reference's.
        limit: what was allowed.
        dtype: of the output, as NumPy names it; "" where the engine has no such output.
        expected_dtype: of the reference's.
        ulps: differences in units in the last place, for floating-point outputs.
        input_set: name of the inputs that this is about.
        passed: within the limit, the same shape, dtype, and NaN and infinities at the same places.
        detail: where they differ most, in words.
    """

    engine: str
    output: str
    difference: Difference
    limit: Limit
    dtype: str
    expected_dtype: str
    ulps: Ulps | None
    input_set: str
    passed: bool
    detail: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        kinds = {"dtype": self.dtype, "expected_dtype": self.expected_dtype}
        figures = None if self.ulps is None else asdict(self.ulps)
        limit = {"rtol": self.limit.rtol, "atol": self.limit.atol}
        head = {"engine": self.engine, "output": self.output, "input_set": self.input_set, **kinds}
        return (
            head | self.difference.as_dict() | {"passed": self.passed, "ulps": figures, **limit, "detail": self.detail}
        )


@dataclass
class Comparison:
    """The result of :func:`compare`; truthy when every row passed.

    Attributes:
        reference: name of the engine that the others are compared with (the last one given), or ``stored``.
        rows: one per engine and output: the input set where they are furthest apart.
        input_sets: names of the sets.
        outputs: arrays of the first set by engine and output name.
        inputs: the sets' inputs by name.
        skipped: engines that were left out, with the reason.
        crashed: engines that ended their process or did not answer, with how.
    """

    reference: str
    rows: list[Row] = field(default_factory=list)
    input_sets: list[str] = field(default_factory=list)
    outputs: dict[str, dict[str, Array]] = field(default_factory=dict)
    inputs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    crashed: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every row passed, and no engine crashed."""
        return all(row.passed for row in self.rows) and not self.crashed

    def __bool__(self) -> bool:
        return self.passed

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as plain data; docs/compare.md describes it."""
        return {
            "reference": self.reference,
            "passed": self.passed,
            "input_sets": self.input_sets,
            "rows": [row.as_dict() for row in self.rows],
            "skipped": self.skipped,
            "crashed": self.crashed,
        }

    def require(self) -> None:
        """Raise CheckFailure naming the worst row unless all passed."""
        bad = [row for row in self.rows if not row.passed]
        if bad:
            worst = max(bad, key=lambda row: row.difference.margin)
            raise CheckFailure(
                f"{len(bad)} of {len(self.rows)} outputs differ from {self.reference}",
                where=f"{worst.engine}, output {worst.output}",
                expected=f"|error| <= {worst.limit}".replace("|expected|", f"|{self.reference}|"),
                got=worst.detail,
            )
        for name, how in self.crashed.items():
            raise CheckFailure("the engine crashed", where=name, got=how)


def compare(
    model: str | Path | onnx.ModelProto,
    inputs: Source | Sequence[Source] | None = None,
    *,
    engines: Sequence[str] | Mapping[str, str | Path | Runner] = ("opforge", "onnxruntime"),
    rtol: float | None = None,
    atol: float | None = None,
    tolerances: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    sets: int = 1,
    sizes: Mapping[str, int] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    values: Mapping[str, str] | None = None,
    threads: int | None = None,
    optional: Collection[str] = (),
    isolate: bool = False,
    packages: Sequence[str] = (),
    timeout: float | None = None,
) -> Comparison:
    """Run ``model`` in every engine on the same inputs; the last engine is the reference.

    Args:
        model: an ONNX model or its file (or a .bin when only opforge runs it).
        inputs: arrays by name, an .npz file, a folder of .npz files, of .npy files or of ONNX's test_data_set_*, or
            several of these; None for random ones by the declared inputs. Where a folder holds outputs too, these are
            the reference.
        engines: names, among them perhaps ``"all"`` for every engine that is here; or name -> model file of that
            engine, or name -> callable from inputs to outputs.
        rtol: relative tolerance; None = by the output's dtype and operator.
        atol: absolute tolerance; likewise.
        tolerances: output, operator (``domain::Name``) or dtype -> (relative, absolute), before the two above.
        seed: of random inputs.
        sets: number of random sets, with the seeds that follow each other.
        sizes: values of named dimensions for random inputs.
        ranges: input, or ``*`` for the others -> lowest and highest random value.
        values: input, or ``*`` -> class of random values: normal, uniform, positive, zeros, ones, large, tiny, wide,
            special (with NaN and infinities).
        threads: threads per engine; None leaves it to each.
        optional: engines that are left out, with the reason, where they cannot run the model; those that ``"all"``
            stands for are.
        isolate: run engines other than opforge's and ONNX's evaluator in a process each, where a crash is a finding;
            opforge's too where the model holds kernels of authors.
        packages: operator packages for those processes; this one has its own registry.
        timeout: seconds that such a process may take to load or run.

    Raises:
        ArgumentError: fewer than two engines, unknown engine or input names.
    """
    if sets < 1:
        raise ArgumentError("there is no such number of input sets", where="compare", got=sets)
    with model_path(model) as path:
        skipped: dict[str, str] = {}
        chosen: Mapping[str, str | Path | Runner]
        if isinstance(engines, Mapping):
            chosen = engines
        else:
            names, skipped = choose_engines(engines, path)
            optional = {*optional, *names} - set(engines)
            chosen = dict.fromkeys(names, path)
        require_known([name for name, source in chosen.items() if not callable(source)])
        if len(chosen) + (inputs is not None) < 2:
            raise _too_few(chosen)
        with Engines(chosen, isolate=isolate, packages=packages, timeout=timeout, optional=optional) as held:
            held.skipped.update(skipped)
            held.load(threads)
            found = run_sets(held, inputs, seed=seed, sets=sets, sizes=sizes, ranges=ranges, values=values)
        limits = Tolerances(rtol, atol, {k: Limit(*v) for k, v in (tolerances or {}).items()}, _makers(path))
    names = list(found.outputs)
    if len(names) < 2 and not held.crashed:
        if chosen and len(chosen) < 2:
            raise _too_few(chosen)
        hint = reasons(held.skipped)
        raise ArgumentError("fewer than two engines run the model", where="compare", got=str(names), hint=hint)
    result = Comparison(names[-1] if names else "", skipped=held.skipped, crashed=held.crashed)
    result.input_sets = [item.name for item in found.sets]
    result.inputs = {item.name: item.values for item in found.sets}
    result.outputs = {name: outputs[0] for name, outputs in found.outputs.items()}
    if limits.named:
        made = {output for outputs in result.outputs.values() for output in outputs}
        limits.check(made | set(limits.makers.values()) | set(limits.makers))
    strict = {name for name, source in chosen.items() if not callable(source)} | {"stored"}
    for name in names[:-1]:
        result.rows += _rows(result, name, found.outputs, limits, {name, result.reference} <= strict)
    return result


def _makers(path: Path) -> dict[str, str]:
    """Which operator makes each output of an ONNX model."""
    from opforge.onnx._read import read_model

    if path.suffix != ".onnx" or not path.is_file():
        return {}
    graph = read_model(path, weights=False).graph
    wanted = {item.name for item in graph.output}
    return {
        name: f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        for node in graph.node
        for name in node.output
        if name in wanted
    }


def _rows(
    result: Comparison, engine: str, outputs: Mapping[str, list[dict[str, Array]]], limits: Tolerances, strict: bool
) -> list[Row]:
    """The worst row of each output over the sets."""
    worst: dict[str, Row] = {}
    for label, got, expected in zip(result.input_sets, outputs[engine], outputs[result.reference], strict=True):
        if not set(got) & set(expected) and (got or expected):
            raise ArgumentError(
                "the engines give different outputs", where=engine, expected=sorted(expected), got=sorted(got)
            )
        for name in (*expected, *(n for n in got if n not in expected)):
            row = compared(engine, name, got.get(name), expected.get(name), limits, strict)
            before = worst.get(name)
            if before is None or (row.passed, -row.difference.margin) < (before.passed, -before.difference.margin):
                worst[name] = replace(row, input_set=label)
    return list(worst.values())


def compared(
    engine: str, output: str, got: Array | None, expected: Array | None, limits: Tolerances, strict: bool
) -> Row:
    """Compare one output; an engine without it fails. ``strict``: a dtype that differs fails too."""
    if got is None or expected is None:
        one = got if got is not None else np.zeros(0)
        missing = measure(np.zeros((1, *one.shape)), one, rtol=0, atol=0)
        words = "there is no such output" if got is None else "the reference has no such output"
        return Row(engine, output, missing, Limit(0, 0), "", "", None, "", False, words)
    limit = limits.of(output, expected.dtype)
    difference = measure(got, expected, rtol=limit.rtol, atol=limit.atol)
    same = got.dtype == expected.dtype or not strict
    words = explain(difference, got, expected, None if difference.passed else (limit.rtol, limit.atol))
    if not same:
        words = f"dtype {got.dtype}, expected {expected.dtype}; {words}"
    names = got.dtype.name, expected.dtype.name
    return Row(engine, output, difference, limit, *names, ulps(got, expected), "", difference.passed and same, words)


def _too_few(chosen: Collection[str]) -> ArgumentError:
    hint = "name a second one, e.g. engines=('opforge', 'onnxruntime') or --engine opforge; the last is the reference"
    got = ", ".join(chosen) or "none"
    return ArgumentError("comparing needs at least two engines", where="compare", got=got, hint=hint)
