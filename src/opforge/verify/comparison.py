"""Run the same inputs through several engines and say how far their outputs are apart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.engines import Array, TensorInfo
from opforge.errors import ArgumentError, CheckFailure, OpforgeError
from opforge.verify._engines import choose_engines, find_engine, reasons
from opforge.verify._inputs import flat_values, gather_values, load_npz, model_path, random_inputs
from opforge.verify._measures import Difference, explain, measure

if TYPE_CHECKING:
    import onnx

__all__ = ["Comparison", "Row", "compare"]

Runner = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True)
class Row:
    """One output of one engine against the reference engine."""

    engine: str
    output: str
    difference: Difference

    def explain(self, comparison: Comparison) -> str:
        """Say in words how the output differs from the reference engine's."""
        got = comparison.outputs[self.engine][self.output]
        expected = comparison.outputs[comparison.reference][self.output]
        return explain(self.difference, got, expected)


@dataclass
class Comparison:
    """The result of :func:`compare`; truthy when every row passed.

    Attributes:
        reference: name of the engine that the others are compared with (the last one given).
        rows: one per engine and output.
        rtol: relative tolerance.
        atol: absolute tolerance.
        outputs: arrays by engine and output name.
        skipped: engines that were left out, with the reason.
    """

    reference: str
    rtol: float
    atol: float
    rows: list[Row] = field(default_factory=list)
    outputs: dict[str, dict[str, Array]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every row is within the tolerance and has the reference's NaN/Inf pattern."""
        return all(row.difference.passed for row in self.rows)

    def __bool__(self) -> bool:
        return self.passed

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as plain data."""
        return {
            "reference": self.reference,
            "rtol": self.rtol,
            "atol": self.atol,
            "passed": self.passed,
            "rows": [{"engine": r.engine, "output": r.output, **r.difference.as_dict()} for r in self.rows],
            "skipped": self.skipped,
        }

    def require(self) -> None:
        """Raise CheckFailure naming the worst row unless all passed."""
        bad = [row for row in self.rows if not row.difference.passed]
        if bad:
            worst = max(bad, key=lambda row: row.difference.max_abs)
            raise CheckFailure(
                f"{len(bad)} of {len(self.rows)} outputs differ from {self.reference}",
                where=f"{worst.engine}, output {worst.output}",
                expected=f"|error| <= {self.atol:g} + {self.rtol:g}*|{self.reference}|",
                got=worst.explain(self),
            )


def compare(
    model: str | Path | onnx.ModelProto,
    inputs: Mapping[str, Array] | str | Path | None = None,
    *,
    engines: Sequence[str] | Mapping[str, str | Path | Runner] = ("opforge", "onnxruntime"),
    rtol: float = 1e-4,
    atol: float = 1e-5,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
    optional: Collection[str] = (),
) -> Comparison:
    """Run ``model`` in every engine on the same inputs; the last engine is the reference.

    Args:
        model: an ONNX model or its file (or a .bin when only opforge runs it).
        inputs: arrays by name, an .npz file, or None for random ones by the declared inputs.
        engines: names, among them perhaps ``"all"`` for every engine that is here; or name -> model file of that
            engine, or name -> callable from inputs to outputs.
        rtol: relative tolerance.
        atol: absolute tolerance.
        seed: of random inputs.
        sizes: values of named dimensions for random inputs.
        threads: threads per engine; None leaves it to each.
        optional: engines that are left out, with the reason, where they cannot run the model; those that ``"all"``
            stands for are.

    Raises:
        ArgumentError: fewer than two engines, unknown engine or input names.
    """
    with model_path(model) as path:
        skipped: dict[str, str] = {}
        chosen: Mapping[str, str | Path | Runner]
        if isinstance(engines, Mapping):
            chosen = engines
        else:
            names, skipped = choose_engines(engines, path)
            optional = {*optional, *names} - set(engines)
            chosen = dict.fromkeys(names, path)
        if len(chosen) < 2:
            raise ArgumentError("comparing needs at least two engines", where="compare", got=f"{list(chosen)}")
        runners, infos = _load(chosen, threads, optional, skipped)
        outputs: dict[str, dict[str, Array]] = {}
        values = _inputs(inputs, infos, seed, sizes)
        for name, run in runners.items():
            try:
                outputs[name] = flat_values(run(values))
            except OpforgeError as problem:
                if name not in optional:
                    raise
                skipped[name] = str(problem)
    if len(outputs) < 2:
        raise ArgumentError(
            "fewer than two engines run the model", where="compare", got=str(list(outputs)), hint=reasons(skipped)
        )
    result = Comparison(list(outputs)[-1], rtol, atol, outputs=outputs, skipped=skipped)
    expected = outputs[result.reference]
    for name, got in outputs.items():
        if name == result.reference:
            continue
        if set(got) != set(expected):
            raise ArgumentError(
                "the engines give different outputs", where=name, expected=sorted(expected), got=sorted(got)
            )
        result.rows += [Row(name, key, measure(got[key], expected[key], rtol=rtol, atol=atol)) for key in expected]
    return result


def _load(
    chosen: Mapping[str, str | Path | Runner],
    threads: int | None,
    optional: Collection[str],
    skipped: dict[str, str],
) -> tuple[dict[str, Runner], Sequence[TensorInfo] | None]:
    """Load every engine; what the first one with a declaration says of the inputs comes along."""
    runners: dict[str, Runner] = {}
    infos: Sequence[TensorInfo] | None = None
    for name, source in chosen.items():
        if callable(source):
            runners[name] = source
            continue
        try:
            loaded = find_engine(name).load(Path(source), threads=threads)
        except OpforgeError as problem:
            if name not in optional:
                raise
            skipped[name] = str(problem)
            continue
        runners[name] = loaded.run
        infos = infos or loaded.inputs
    return runners, infos


def _inputs(
    inputs: Mapping[str, Array] | str | Path | None,
    infos: Sequence[TensorInfo] | None,
    seed: int,
    sizes: Mapping[str, int] | None,
) -> Mapping[str, Array]:
    if inputs is None:
        if infos is None:
            raise ArgumentError(
                "random inputs need an engine that declares its inputs", where="compare", hint="pass inputs="
            )
        return random_inputs(infos, seed=seed, sizes=sizes)
    values = load_npz(Path(inputs)) if isinstance(inputs, str | Path) else inputs
    if infos is not None:
        values = gather_values(values, infos)
    return values
