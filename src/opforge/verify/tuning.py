"""``opforge tune``: which launch of an operator's CUDA kernels is fastest on this device, measured and kept.

What is tried: threads of a block and elements of a thread for formulas, and what ``TUNING`` in the `cases.py` of a
kernel operator names::

    TUNING = {
        "SparseMatMul": {
            "variants": ["rows", "merged segments"],                 # choice.variant 1, 2 in cuda.cu
            "threads": [128, 256], "items": [1],                   # optional
            "cases": [{"name": ..., "inputs": {...}}],             # as in CASES; default: CASES
            "kept": True,  # False: shown only, the kernel's own rule stays; or a list of the variants that may be kept
        }
    }

A choice that the kernel refuses, because the library that a variant calls is not here, say, or that computes something
else, is left out with its words. So is one that is kept but gives other bits in every run.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from opforge.build import LoadedLibrary, abi, tuning
from opforge.build.library import LibraryKernel
from opforge.build.tuning import Choice
from opforge.codegen.units import dtype_choices
from opforge.cuda.device import Launcher, Session
from opforge.errors import ArgumentError, OpforgeError
from opforge.schema import DType, Operator
from opforge.verify.cases import Case, arrays, case_of, cases_of, parameters, tolerance, tuning_of

__all__ = ["Tuned", "agreed", "tune_operator", "variants_of", "wanted_dtypes"]

_THREADS: Final = (64, 128, 256, 512, 1024)
_ITEMS: Final = (1, 2, 4)
_GAIN: Final = 0.98
"""The kernel's own way stays unless another takes at most this part of its time: less is noise."""
_ROUNDS: Final = 9
_LONG: Final = 200e-6
"""Seconds that one timed stretch takes at least, where launches are short."""
_MOST_LAUNCHES: Final = 64
_REPEATS: Final = 2
"""Launches after the first whose bits must be its own."""


@dataclass(frozen=True)
class Tuned:
    """What was found for one kernel and class of size.

    Attributes:
        operator: its key.
        dtypes: names, one per type variable.
        klass: class of size.
        shape: of the inputs that were measured with.
        seconds: of the choice.
        untuned: seconds of the kernel's own way.
        choice: the fastest of those that may be kept; of all where none may.
        text: its name.
        variant: the name of its variant, "" for the kernel's own rule.
        tried: every choice as text -> seconds.
        refused: every choice that does not serve -> why.
        row: its name in the file of choices.
        kept: whether it is for that file, or only to be seen.
    """

    operator: str
    dtypes: tuple[str, ...]
    klass: int
    shape: str
    seconds: float
    untuned: float
    choice: Choice
    text: str
    variant: str
    tried: dict[str, float]
    refused: dict[str, str]
    row: str = field(repr=False)
    kept: bool = True
    choices: dict[str, Choice] = field(default_factory=dict, repr=False)
    """Those that may be kept, by their names."""

    def as_dict(self) -> dict[str, Any]:
        """Return what was found as plain data."""
        return {name: value for name, value in asdict(self).items() if name != "choices"}


def agreed(rows: Sequence[Tuned]) -> list[tuple[str, Choice, dict[str, Any]]]:
    """Return what is to be kept, one row per name: of cases of one class, the choice that serves them best together.

    Returns:
        Name, choice, and what was measured (geometric means over the cases).
    """
    groups: dict[str, list[Tuned]] = {}
    for row in rows:
        if row.kept:
            groups.setdefault(row.row, []).append(row)
    found = []
    for name, group in groups.items():
        common = [text for text in group[0].choices if all(text in one.choices for one in group)]
        means = {text: statistics.geometric_mean(max(one.tried[text], 1e-9) for one in group) for text in common}
        best = min(common, key=lambda text: means[text])
        if means[best] > _GAIN * means[common[0]]:
            best = common[0]
        measured = {"seconds": means[best], "untuned": means[common[0]], "shape": "; ".join(one.shape for one in group)}
        found.append((name, group[0].choices[best], measured))
    return found


def wanted_dtypes(operators: Sequence[Operator], dtypes: Sequence[str]) -> tuple[str, ...]:
    """Return the short names of the dtypes that operators are to be tuned for, ``float32`` as ``f32``.

    Raises:
        DtypeError: one is no dtype.
        ArgumentError: none of the operators can be tuned for one.
    """
    has = {name: None for operator in operators for chosen in dtype_choices(operator) for name in _names(chosen)}
    wanted = tuple(DType.parse(given).name for given in dtypes)
    for name in wanted:
        if name not in has:
            where = ", ".join(operator.key for operator in operators)
            raise ArgumentError("nothing to tune for this dtype", where=where, expected=", ".join(has), got=name)
    return wanted


def _names(chosen: Sequence[DType]) -> list[str]:
    """Return what a choice of dtypes is known by: its floating ones, else all."""
    return [d.name for d in chosen if d.is_float] or [d.name for d in chosen]


def tune_operator(
    operator: Operator,
    session: Session,
    library: LoadedLibrary,
    *,
    dtypes: Sequence[str] = (),
    largest: int = 1 << 27,
    seconds: float = 60.0,
    seed: int = 0,
    variant: str = "",
) -> Iterator[Tuned]:
    """Measure every choice of the operator's kernels, let the library use the fastest, and give what was found.

    Args:
        operator: what to tune; of a formula operator every class of size is measured, of a kernel operator the classes
            of its cases.
        session: the device.
        library: that holds the kernels for it.
        dtypes: names of the dtypes to tune for; default f32 where the operator has it, and the halves.
        largest: elements of all tensors together, beyond which nothing is measured.
        seconds: after which no further point is begun.
        seed: of inputs and of the order of the rounds.
        variant: the name of one that is asked for: it alone is measured beside the kernel's own way.

    Raises:
        UnsupportedError: `variant` cannot be had: the kernel's words say why.
    """
    found: dict[str, list[Tuned]] = {}
    until = time.monotonic() + seconds
    wanted = {DType.parse(name).name for name in dtypes} or {"f32", "f16", "bf16"}
    largest = min(largest, session.driver.free_bytes() // 32)
    row = library.operator(operator.key)
    for chosen in dtype_choices(operator):
        types = dict(zip(operator.types, chosen, strict=True))
        floats = {d.name for d in chosen if d.is_float}
        if floats and not floats & wanted:
            continue
        kernel = row.kernel_for(tuple((d.code, d.bits) for d in chosen), abi.DEVICE_CUDA)
        for case in _points(operator, largest):
            if time.monotonic() > until:
                return
            inputs = arrays(operator, case, types, seed=seed)
            try:
                launcher = _prepared(operator, inputs, case, session, library)
            except OpforgeError:  # a case that the operator refuses, which `opforge check` reports
                continue
            if 0 < launcher.elements <= largest:
                klass = tuning.size_class(launcher.elements)
                name = tuning.row_name(row, kernel, library.content_hash, klass)
                one = _best(operator, session, launcher, kernel, klass, types, _shape(inputs), name, seed, variant)
                found.setdefault(name, []).append(one)
                for _, choice, _ in agreed(found[name]):
                    tuning.set_choice(kernel, klass, choice, optional=True)
                yield one
            session.close()


def _prepared(
    operator: Operator, inputs: Sequence[Any], case: Case, session: Session, library: LoadedLibrary
) -> Launcher:
    sent = [None if a is None else session.upload(np.array(a, order="C")) for a in inputs]
    variadic = [p.variadic for p in parameters(operator, inputs)]
    plain = [a for a, many in zip(sent, variadic, strict=True) if not many]
    rest = tuple(a for a, many in zip(sent, variadic, strict=True) if many and a is not None)
    return session.prepare(operator, [*plain, *([rest] if any(variadic) else [])], case.attributes, library=library)


def _points(operator: Operator, largest: int) -> Iterator[Case]:
    """The cases to measure: of a formula, one in the middle of each class; of a kernel operator, its own."""
    if operator.formula is None:
        rows = tuning_of(operator).get("cases")
        yield from cases_of(operator) if rows is None else (case_of(operator, row) for row in rows)
        return
    names = [p.name for p in operator.signature.inputs]
    tensors = len(names) + len(operator.signature.outputs)
    for klass in range(tuning.CLASSES):
        elements = 1 << (10 + 3 * klass)
        if elements <= largest:
            spec = {"shape": [max(1, elements // tensors) // 16 * 16], "normal": 1.0}
            yield Case(f"class {klass}", dict.fromkeys(names, spec))


def variants_of(operator: Operator) -> tuple[str, ...]:
    """Return the names of an operator's variants, in the order of their numbers."""
    return () if operator.formula is not None else tuple(tuning_of(operator).get("variants", ()))


def _may_be_kept(operator: Operator, choice: Choice) -> bool:
    kept = tuning_of(operator).get("kept", True) if operator.formula is None else True
    if isinstance(kept, bool):
        return kept
    return choice.own or (choice.variant > 0 and variants_of(operator)[choice.variant - 1] in kept)


def _choices(operator: Operator, variant: str = "") -> Iterator[tuple[Choice, str]]:
    number = variants_of(operator).index(variant) + 1 if variant else 0
    for choice, text in _every_choice(operator):
        if not variant or choice.variant == number or choice.own:
            yield choice, text


def _every_choice(operator: Operator) -> Iterator[tuple[Choice, str]]:
    yield Choice(), "as it is"
    if operator.formula is not None:
        for threads in _THREADS:
            yield from ((Choice(threads, items), f"{threads} threads, {items} items") for items in _ITEMS)
        return
    known = tuning_of(operator)
    for number, variant in enumerate(known.get("variants", ()) or [""], 1 if known.get("variants") else 0):
        for threads in known.get("threads", (0,)):
            for items in known.get("items", (0,)):
                parts = (variant, f"{threads} threads" if threads else "", f"{items} items" if items else "")
                text = ", ".join(filter(None, parts))
                if text:
                    yield Choice(threads, items, number), text


def _best(
    operator: Operator,
    session: Session,
    launcher: Launcher,
    kernel: LibraryKernel,
    klass: int,
    types: dict[str, DType],
    shape: str,
    name: str,
    seed: int,
    variant: str,
) -> Tuned:
    choices = dict((text, choice) for choice, text in _choices(operator, variant))
    refused: dict[str, str] = {}
    first: list[Any] = []
    runs = {}
    for text, choice in list(choices.items()):
        tuning.set_choice(kernel, klass, choice)
        tuning.library_used(kernel)
        try:
            found = _results(session, launcher)
            choices[text] = replace(choice, library=tuning.library_used(kernel))
            if not first:
                first = found
            elif not _same(operator, first, found):
                raise OpforgeError("it gives other values")
            if choice.variant and _may_be_kept(operator, choice) and not _repeats(session, launcher, found):
                raise OpforgeError("its results differ from run to run")
            runs[text] = _Timed(session, launcher)
        except OpforgeError as error:
            if not first or variant:
                raise  # the kernel's own way fails: nothing to compare with; or what was asked for
            refused[text] = _reason(error)
            del choices[text]
    times: dict[str, list[float]] = {text: [] for text in choices}
    order, names = random.Random(seed), list(choices)
    for _ in range(_ROUNDS):
        order.shuffle(names)
        for text in names:
            tuning.set_choice(kernel, klass, choices[text])
            times[text].append(runs[text]())
    for run in runs.values():
        run.close()
    medians = {text: statistics.median(values) for text, values in times.items()}
    own = next(iter(choices))
    keepable = [text for text, choice in choices.items() if _may_be_kept(operator, choice)]
    best = min(keepable or medians, key=lambda text: medians[text])
    if medians[best] > _GAIN * medians[own]:
        best = own
    chosen = choices[best]
    tuning.set_choice(kernel, klass, Choice())
    return Tuned(
        operator.key,
        tuple(d.name for d in types.values()),
        klass,
        shape,
        medians[best],
        medians[own],
        chosen,
        best,
        variants_of(operator)[chosen.variant - 1] if chosen.variant else "",
        medians,
        refused,
        name,
        bool(keepable),
        {text: choices[text] for text in keepable},
    )


def _reason(error: OpforgeError) -> str:
    """Return the error's first line, and what it says was got: why a library could not be opened."""
    lines = str(error).splitlines()
    return "; ".join([lines[0], *(line.strip() for line in lines[1:] if line.strip().startswith("got:"))])


class _Timed:
    """Some launches on a stream of their own, as a graph where they can be recorded: the host's time is left out."""

    def __init__(self, session: Session, launcher: Launcher) -> None:
        self._driver = session.driver
        self._launcher = launcher
        self._stream = self._driver.stream()
        self._events = self._driver.event(), self._driver.event()
        self._graph = 0
        self._count = 1
        once = min(self._direct() for _ in range(3))
        self._count = max(1, min(_MOST_LAUNCHES, round(_LONG / max(once, 1e-6))))
        self._graph = self._recorded()

    def _recorded(self) -> int:
        try:
            self._driver.begin_capture(self._stream)
        except OpforgeError:
            return 0
        try:
            for _ in range(self._count):
                self._launcher(self._stream)
        except OpforgeError:  # a library call that cannot be recorded: it is timed as it is
            try:
                self._driver.end_graph(self._driver.end_capture(self._stream))
            except OpforgeError:
                pass
            return 0
        try:
            return self._driver.end_capture(self._stream)
        except OpforgeError:
            return 0

    def _between(self, run: Any) -> float:  # noqa: ANN401 - a function
        start, end = self._events
        self._driver.record(start, self._stream)
        run()
        self._driver.record(end, self._stream)
        return self._driver.seconds(start, end)

    def _direct(self) -> float:
        def run() -> None:
            for _ in range(self._count):
                self._launcher(self._stream)

        return self._between(run) / self._count

    def __call__(self) -> float:
        if not self._graph:
            return self._direct()
        return self._between(lambda: self._driver.launch_graph(self._graph, self._stream)) / self._count

    def close(self) -> None:
        self._driver.synchronize(self._stream)
        if self._graph:
            self._driver.end_graph(self._graph)
        for event in self._events:
            self._driver.end_event(event)
        self._driver.end_stream(self._stream)


def _results(session: Session, launcher: Launcher) -> list[Any]:
    """Launch once on outputs full of NaN and bring a part of them back."""
    for array in launcher.outputs:
        session.driver.fill(array.address, 0xFF, array.elements * array.dtype.itemsize)
    launcher()
    return [session.download(array) for array in launcher.outputs]


def _repeats(session: Session, launcher: Launcher, found: Sequence[Any]) -> bool:
    """Whether more launches give the bits of the first."""
    runs = (_results(session, launcher) for _ in range(_REPEATS))
    return all(a.tobytes() == b.tobytes() for run in runs for a, b in zip(run, found, strict=True))


def _same(operator: Operator, first: Sequence[Any], found: Sequence[Any]) -> bool:
    """Whether values agree within what the operator allows twice: both are roundings of the right ones."""
    for one, other in zip(first, found, strict=True):
        allowed = tolerance(operator, DType.parse(one.dtype))
        left, right = (np.asarray(a, np.float64) if DType.parse(a.dtype).is_float else a for a in (one, other))
        scale = float(np.abs(left[np.isfinite(left)]).max(initial=0)) if left.size else 0.0
        limit = 2 * (allowed.atol + allowed.rtol * scale)
        if not np.allclose(left, right, rtol=2 * allowed.rtol, atol=limit, equal_nan=True):
            return False
    return True


def _shape(inputs: Sequence[Any]) -> str:
    shapes = [str(list(a.shape)) for a in islice(inputs, 6) if a is not None]
    return ", ".join(shapes)
