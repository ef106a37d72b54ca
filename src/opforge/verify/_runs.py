"""Load a model in several engines, in this process or in one each, and run sets of inputs through all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from opforge.engines import Array, LoadedModel, TensorInfo
from opforge.errors import ArgumentError, EngineCrash, OpforgeError
from opforge.verify._declared import UndeclaredError
from opforge.verify._engines import REFERENCE, find_engine
from opforge.verify._inputs import flat_values, random_inputs
from opforge.verify._kernels import NO_KERNELS, Kernels, kernels_of
from opforge.verify._process import EngineProcess
from opforge.verify._sets import InputSet, Source, read_sets

__all__ = ["OWN", "STORED", "Engines", "Loader", "Runner", "Runs", "loader", "run_sets", "trial"]

Runner = Callable[[Mapping[str, Any]], Mapping[str, Any]]
OWN = ("opforge", REFERENCE)
"""Engines of this process: the first is put into one of its own only for kernels of authors."""
STORED = "stored"
"""Stands for outputs that lie beside the inputs."""


class Engines:
    """Engines by name: a model file that one loads, or a function; use it in a ``with`` statement.

    Attributes:
        runs: how to run those that loaded.
        infos: the declared inputs of the first that declares some; None where only functions are compared.
        outputs: its outputs' names.
        skipped: left out, with the reason.
        crashed: crashed while loading or running, with how.
    """

    def __init__(
        self,
        chosen: Mapping[str, str | Path | Runner],
        *,
        isolate: bool,
        packages: Sequence[str],
        timeout: float | None,
        optional: Collection[str],
    ) -> None:
        self._chosen = chosen
        self._optional = optional
        self.runs: dict[str, Runner] = {}
        self.infos: Sequence[TensorInfo] | None = None
        self.outputs: Sequence[str] = ()
        self.skipped: dict[str, str] = {}
        self.crashed: dict[str, str] = {}
        self._stack = ExitStack()
        models = {name: Path(source) for name, source in chosen.items() if not callable(source)}
        kernels = {path: kernels_of(path) for path in set(models.values())} if isolate else {}
        self._loaders: dict[str, Loader] = {
            name: self._stack.enter_context(
                loader(name, isolate=isolate, packages=packages, timeout=timeout, kernels=kernels.get(path, NO_KERNELS))
            )
            for name, path in models.items()
        }

    def __enter__(self) -> Engines:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def load(self, threads: int | None) -> None:
        """Load the model in every engine."""
        for name, source in self._chosen.items():
            if callable(source):
                self.runs[name] = source
                continue
            with self.leaving_out(name):
                loaded = self._loaders[name].load(Path(source), threads=threads)
                self.runs[name] = loaded.run
                if self.infos is None:
                    self.infos, self.outputs = loaded.inputs, loaded.outputs

    def leaving_out(self, name: str) -> _LeavingOut:
        """Keep the engine's refusal, where it is optional, or its crash."""
        return _LeavingOut(self, name, name in self._optional)


class _LeavingOut:
    def __init__(self, engines: Engines, name: str, optional: bool) -> None:
        self._engines = engines
        self._name = name
        self._optional = optional

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, problem: BaseException | None, _trace: object) -> bool:
        if isinstance(problem, EngineCrash):
            self._engines.crashed[self._name] = str(problem)
        elif isinstance(problem, OpforgeError) and self._optional:
            self._engines.skipped[self._name] = str(problem)
        else:
            return False
        self._engines.runs.pop(self._name, None)
        return True


class Loader(Protocol):
    """What loads models in one engine."""

    def load(self, model: Path, *, threads: int | None = None) -> LoadedModel:
        """Load a model."""
        ...

    def __enter__(self) -> Loader:
        """Nothing: it is ready when it is made."""
        ...

    def __exit__(self, *trace: object) -> None:
        """End its process, where it has one."""
        ...


class _Here:
    """An engine in this process."""

    def __init__(self, name: str) -> None:
        self._name = name

    def load(self, model: Path, *, threads: int | None = None) -> LoadedModel:
        return find_engine(self._name).load(model, threads=threads)

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *trace: object) -> None:
        pass


def loader(
    name: str,
    *,
    isolate: bool,
    packages: Sequence[str] = (),
    timeout: float | None = None,
    kernels: Kernels = NO_KERNELS,
) -> Loader:
    """Return what loads models in an engine: here, or in a process of its own that starts now.

    Args:
        name: the engine.
        isolate: whether it may be in a process of its own.
        packages: operator packages to load there.
        timeout: seconds that loading or a run may take there.
        kernels: of authors, which the models hold: for them opforge's own runtime is in such a process too.
    """
    if not isolate or name == REFERENCE or (name in OWN and not kernels):
        return _Here(name)
    from opforge.verify._engines import engines

    known = engines()
    if name not in known or not known[name].availability().ok:
        return _Here(name)  # its words, without a process
    try:
        return EngineProcess(name, packages=packages, timeout=timeout, kernels=kernels)
    except UndeclaredError:
        if name in OWN:
            return _Here(name)
        return EngineProcess(name, packages=packages, timeout=timeout)  # which says what it does not know


def trial(
    name: str,
    model: Path,
    inputs: Mapping[str, Any] | Callable[[Sequence[TensorInfo]], Mapping[str, Any]],
    threads: int | None,
    packages: Sequence[str],
    *,
    tried: bool,
) -> None:
    """Load and run once in a process of its own, where ``tried``: what crashes there is not let in here.

    Inputs that do not fit are not said here: the engine is loaded again, and then they are wrong for every engine.

    Raises:
        OpforgeError: what the engine says, or that it crashed.
    """
    if not tried:
        return
    with loader(name, isolate=True, packages=packages, kernels=kernels_of(model)) as held:
        if isinstance(held, _Here):
            return
        loaded = held.load(model, threads=threads)
        try:
            values = inputs(loaded.inputs) if callable(inputs) else inputs
        except OpforgeError:
            return
        loaded.run(values)


@dataclass(frozen=True)
class Runs:
    """Outputs of every engine for every set; stored outputs, the reference where there are some, come last."""

    sets: list[InputSet]
    outputs: dict[str, list[dict[str, Array]]]


def run_sets(
    engines: Engines,
    inputs: Source | Sequence[Source] | None,
    *,
    seed: int,
    sets: int,
    sizes: Mapping[str, int] | None,
    ranges: Mapping[str, tuple[float, float]] | None,
    values: Mapping[str, str] | None,
) -> Runs:
    """Run the sets that the caller names, or random ones, through every engine that loaded."""
    if inputs is not None:
        found = read_sets(inputs, engines.infos, engines.outputs)
    elif engines.infos is not None:
        found = [
            InputSet(
                f"seed {number}",
                random_inputs(engines.infos, seed=number, sizes=sizes, ranges=ranges, values=values),
                {},
            )
            for number in range(seed, seed + sets)
        ]
    elif engines.runs:
        raise ArgumentError(
            "random inputs need an engine that declares its inputs", where="compare", hint="pass inputs="
        )
    else:
        found = []
    outputs: dict[str, list[dict[str, Array]]] = {}
    for name, run in list(engines.runs.items()):
        with engines.leaving_out(name):
            outputs[name] = [flat_values(run(item.values)) for item in found]
    if found and all(item.expected for item in found):
        outputs[STORED] = [flat_values(item.expected) for item in found]
    return Runs(found, outputs)
