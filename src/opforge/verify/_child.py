"""The cases of one operator in a process of their own, which may end badly: ``python -m opforge.verify._child JOB``.

JOB is a JSON file: what to load and call (`opforge.verify.isolated` writes it). Each call is announced on standard
output before it runs, so that the parent knows what ended the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from opforge.build import abi
from opforge.build.invoke import native_loops, split_loops
from opforge.build.library import LoadedLibrary, load_library
from opforge.errors import OpforgeError
from opforge.frameworks import numpy_host
from opforge.schema import Operator
from opforge.verify._declared import declare
from opforge.verify._rows import Array, choices, label, reference
from opforge.verify._spawn import end_with_parent
from opforge.verify.cases import Case, arrays, cases_of, parameters
from opforge.verify.sweep import drawn_cases

__all__ = ["main"]

_THREADS = 4
_NARROW = 8192  # elements of a case's inputs where every thread of a kernel takes a millisecond


def main(arguments: Sequence[str]) -> int:
    """Run the job."""
    end_with_parent()
    job = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    operator = declare(job["target"], *job["operator"])
    if job["derived"]:
        (operator,) = [one for one in operator.derived if one.name == job["derived"]]
    library = load_library(job["library"]) if job["library"] else None
    {"cases": _cases, "threads": _threads, "values": _values}[job["what"]](operator, library, job)
    return 0


def _say(word: str, **facts: Any) -> None:  # noqa: ANN401
    print(json.dumps({"event": word, **facts}), flush=True)


def _points(operator: Operator, job: dict[str, Any]) -> Iterator[tuple[Case, list[Array | None], str]]:
    every = list(choices(operator))
    single = [types for types in every if all(d.name == "f32" or not d.is_float for d in types.values())]
    for types in (single or every)[:1] if job["narrow"] else every:
        for case in [*cases_of(operator), *drawn_cases(operator, job["drawn"], job["seed"])]:
            inputs = arrays(operator, case, types, seed=job["seed"])
            if not job["narrow"] or sum(value.size for value in inputs if value is not None) <= _NARROW:
                yield case, inputs, label(types)


def _call(
    operator: Operator,
    library: LoadedLibrary | None,
    inputs: Sequence[Array | None],
    case: Case,
    device: int = abi.DEVICE_CPU,
) -> list[Array]:
    given = operator.arrange(inputs, {})
    result = numpy_host.call(operator, given, case.attributes, library=library, device=device)
    return list(result) if isinstance(result, tuple) else [result]


def _cases(operator: Operator, library: LoadedLibrary | None, job: dict[str, Any]) -> None:
    """Every case as it is and with its loops in chunks, on arrays that the allocator knows one by one."""
    for case, inputs, dtype in _points(operator, job):
        _say("call", case=case.name, dtype=dtype)
        with contextlib.suppress(OpforgeError):  # what is refused is no matter of memory
            _call(operator, library, _exact(inputs), case, job["device"])
            with split_loops(0xFF):
                _call(operator, library, _exact(inputs), case, job["device"])


def _exact(inputs: Sequence[Array | None]) -> list[Array | None]:
    """Copy each array to memory of its own, so that a read beyond its end is one beyond its allocation."""
    return [None if value is None else np.array(value, order="C", copy=True) for value in inputs]


def _threads(operator: Operator, library: LoadedLibrary | None, job: dict[str, Any]) -> None:
    """The chunks of every case on several threads, and every case from several threads at once.

    Threads of Python's would not do for the chunks: its lock orders them, so that the sanitizer sees no race.
    """
    loop = ctypes.cast(ctypes.CDLL(job["library"]).opforge_check_parallel_for, ctypes.c_void_p).value or 0
    for case, inputs, dtype in _points(operator, job):
        _say("call", case=case.name, dtype=dtype)
        with contextlib.suppress(OpforgeError):
            with native_loops(loop):
                _call(operator, library, inputs, case)
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(lambda _, i=inputs, c=case: _call(operator, library, i, c), range(2 * _THREADS)))


def _values(operator: Operator, library: LoadedLibrary | None, job: dict[str, Any]) -> None:
    """The smallest and the largest integer in each integer input: refused, or what the reference gives."""
    for types in choices(operator):
        for case in cases_of(operator):
            inputs = arrays(operator, case, types, seed=job["seed"])
            for index, (parameter, value) in enumerate(zip(parameters(operator, inputs), inputs, strict=True)):
                if value is None or not value.size or value.dtype.kind not in "iu":
                    continue
                info = np.iinfo(value.dtype)
                for position in {0, value.size - 1}:
                    for bad in (info.min, info.max) if info.min else (info.max,):
                        changed = value.copy()
                        changed.reshape(-1)[position] = bad
                        given = [*inputs[:index], changed, *inputs[index + 1 :]]
                        facts = {"case": case.name, "dtype": label(types), "input": parameter.name,
                                 "position": position, "value": int(bad)}  # fmt: skip
                        _say("call", **facts)
                        _say("done", **facts, accepted=_accepted(operator, library, given, case))
            break


def _accepted(operator: Operator, library: LoadedLibrary | None, inputs: list[Array | None], case: Case) -> str:
    """Say how the kernel got on with values that the reference refuses ("" = well)."""
    try:
        got = _call(operator, library, inputs, case)
    except OpforgeError:
        return ""
    try:
        expected = reference(operator, inputs, case.attributes)
    except Exception as problem:  # the reference is the author's code
        return f"the reference refuses it ({type(problem).__name__}: {problem}), the kernel computes something"
    same = all(a.shape == b.shape for a, b in zip(got, expected, strict=True))
    return "" if same else "the kernel and the reference give different shapes"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
