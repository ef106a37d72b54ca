"""The cases of a stress run: what is called, with which inputs, and how a user calls the same by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from opforge.engines import TensorInfo
from opforge.errors import ArgumentError
from opforge.schema import Operator, load
from opforge.verify._engines import find_engine
from opforge.verify._inputs import flat_values, gather_values, load_npz, random_inputs
from opforge.verify._rows import choices, label
from opforge.verify.cases import Case, arrays, cases_of, parameters
from opforge.verify.hosts import Host, hosts
from opforge.verify.stress._spec import Spec, sizes_of

__all__ = ["Job", "Work", "prepare", "storable"]

Array = np.ndarray[Any, Any]

_USUAL_SIZES = (2, 1, 5, 16)
"""Sizes of open dimensions when nobody names any: every one of a model takes the same."""
_MOST_JOBS = 48


@dataclass(frozen=True)
class Job:
    """One case: a call, its inputs by name, whether its results are held against the first ones."""

    name: str
    run: Callable[[], Mapping[str, Array]]
    inputs: Mapping[str, Array]
    reproduce: str
    compare: bool = True


@dataclass
class Work:
    """All cases, and what was left out with the reason.

    Attributes:
        jobs: the cases.
        optional: whether a case that fails the first time is left out instead of being a failure.
        left_out: by case or operator.
    """

    jobs: list[Job] = field(default_factory=list)
    optional: bool = False
    left_out: dict[str, str] = field(default_factory=dict)


def prepare(spec: Spec) -> Work:
    """Load the target and make its cases.

    Raises:
        ArgumentError: there is no such target, or an option does not go with it.
    """
    for package in spec.packages:
        load(package)
    return _model(spec) if spec.is_model else _operators(spec)


def _model(spec: Spec) -> Work:
    path = Path(spec.target)
    engine = find_engine(spec.engine)
    suffixes = engine.traits().suffixes
    if path.suffix not in suffixes:
        raise ArgumentError(
            f"{spec.engine} does not take such a file", where=str(path), expected=", ".join(suffixes), got=path.suffix
        )
    loaded = engine.load(path, threads=spec.run_threads)
    infos = loaded.inputs
    if spec.npz and spec.shapes:
        raise ArgumentError("--npz gives the shapes, so --shapes has no use", where="stress")
    work = Work()
    given: list[tuple[str, Mapping[str, Any]]] = []
    if spec.npz:
        given = [(Path(file).name, gather_values(load_npz(Path(file)), infos)) for file in spec.npz]
    else:
        open_dims = _open_dimensions(infos)
        rows = sizes_of(spec.shapes)
        if not spec.shapes and open_dims:
            work.optional = True
            usual = _USUAL_SIZES if engine.traits().dynamic_shapes else _USUAL_SIZES[:1]
            rows = [dict.fromkeys(open_dims, size) for size in usual]
        for sizes in rows:
            text = " ".join(f"{name}={size}" for name, size in sizes.items())
            given.append((text or "declared shapes", random_inputs(infos, seed=spec.seed, sizes=sizes)))
    packages = "".join(f" --package {package}" for package in spec.packages)
    threads = f" --threads {spec.run_threads}" if spec.run_threads else ""
    command = f"opforge run {path} --npz {{npz}} --engine {spec.engine}{threads}{packages}"
    for name, values in given:
        work.jobs.append(Job(name, partial(_run_model, loaded.run, values), flat_values(values), command, spec.compare))
    return work


def _run_model(run: Callable[[Mapping[str, Any]], Mapping[str, Any]], values: Mapping[str, Any]) -> dict[str, Array]:
    return flat_values(run(values))


def _open_dimensions(infos: Sequence[TensorInfo]) -> list[str]:
    """Return the names of dimensions that are no numbers; ``input.axis`` where they have none."""
    found = {
        dim if isinstance(dim, str) else f"{info.name}.{axis}"
        for info in infos
        for axis, dim in enumerate(info.shape)
        if not isinstance(dim, int)
    }
    return sorted(found)


def _operators(spec: Spec) -> Work:
    if spec.shapes or spec.npz:
        raise ArgumentError(
            "--shapes and --npz are for models",
            where=spec.target,
            hint="the shapes of an operator are those of the cases beside its declaration",
        )
    (host,) = hosts([spec.host])
    work = Work()
    for operator in load(spec.target):
        why = host.refuses(operator)
        if why:
            work.left_out[operator.qualified_name] = why
            continue
        for case in cases_of(operator):
            for types in choices(operator):
                inputs = arrays(operator, case, types, seed=spec.seed)
                name = " · ".join(part for part in (operator.name, case.name, label(types)) if part)
                work.jobs.append(_operator_job(spec, operator, host, case, name, inputs))
    if not work.jobs:
        raise ArgumentError("nothing to run", where=spec.target, got=work.left_out or "no cases")
    if len(work.jobs) > _MOST_JOBS:
        step = len(work.jobs) / _MOST_JOBS
        work.left_out["further cases"] = f"{len(work.jobs) - _MOST_JOBS} of {len(work.jobs)}, every other alike is run"
        work.jobs = [work.jobs[int(k * step)] for k in range(_MOST_JOBS)]
    return work


def _operator_job(
    spec: Spec, operator: Operator, host: Host, case: Case, name: str, inputs: Sequence[Array | None]
) -> Job:
    owners = parameters(operator, inputs)
    counts: dict[str, int] = {}
    named: dict[str, Array] = {}
    arguments = []
    for owner, value in zip(owners, inputs, strict=True):
        k = counts[owner.name] = counts.get(owner.name, -1) + 1
        key = f"{owner.name}[{k}]" if owner.variadic else owner.name
        if value is None:
            arguments.append("None")
            continue
        named[key] = value
        bits = _needs_bits(value)
        arguments.append(f'data["{key}"]' + (f'.view("{value.dtype.name}")' if bits else ""))
    attributes = "".join(f", {key}={value!r}" for key, value in case.attributes.items())
    lines = [
        "import ml_dtypes" if any(_needs_bits(v) for v in named.values()) else "",
        "import numpy as np",
        "import opforge as of",
        f'op = next(o for o in of.load("{spec.target}") if o.name == "{operator.name}")',
        'data = np.load("{npz}")',
        f"print(op({', '.join(arguments)}{attributes}))",
    ]
    outputs = [parameter.name for parameter in operator.signature.outputs]

    def run() -> dict[str, Array]:
        results = host.compute(operator, inputs, case.attributes)
        names = outputs if len(results) == len(outputs) else [f"output {k}" for k in range(len(results))]
        return dict(zip(names, results, strict=True))

    text = "\n".join(line for line in lines if line)
    return Job(name, run, named, text, spec.compare and operator.deterministic)


def _needs_bits(value: Array) -> bool:
    """Whether .npz has no name for the dtype (bfloat16 and the like), so that the file holds the bits."""
    return value.dtype.kind == "V" or int(value.dtype.isbuiltin) == 2


def storable(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays as an .npz can hold them."""
    return {
        name: value.view(f"u{value.dtype.itemsize}") if _needs_bits(value) else value for name, value in inputs.items()
    }
