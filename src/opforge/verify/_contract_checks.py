"""Checks of what an operator promises besides values: its library, its inputs and outputs, memory, its ONNX node."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from opforge.build import abi, library_for
from opforge.build.builder import current_content
from opforge.build.library import LoadedLibrary
from opforge.build.plan import plan_library
from opforge.errors import OpforgeError
from opforge.schema import DType, Operator, registry
from opforge.verify._announced import announce
from opforge.verify._memory import bytes_in_use
from opforge.verify._rows import Array, Row, choices, label, widest
from opforge.verify.cases import Case, arrays, cases_of
from opforge.verify.hosts import Host
from opforge.verify.support import case_model

__all__ = ["leaks", "library", "node", "owned"]

_WARM = 20
_SLACK = 1 << 16
"""Bytes that a host may keep for itself, such as caches that fill on first calls."""


def library(operator: Operator) -> Iterator[Row]:
    """The loaded library: its ABI, the declaration in its table, a kernel for each choice of dtypes, its content."""
    loaded = library_for([operator])
    found = loaded.operator(operator.key)
    where = "interpreter" if loaded.path is None else loaded.path.name

    def row(case: str, passed: bool, detail: str) -> Row:
        return Row("library", case, "", "", passed, "" if passed else f"{where}: {detail}")

    table = abi.Library.from_address(loaded.table)
    yield row("ABI", table.abi == abi.ABI, f"built for ABI {table.abi}, this is {abi.ABI}; build it again")
    pairs = {
        "signature": (found.signature, str(operator.signature)),
        "types": (found.types, operator.types_text),
        "gradient": (found.gradient, operator.gradient or ""),
        "flags": (found.flags, operator.flags),
        "schema hash": (found.schema_hash, operator.schema_hash),
    }
    for name, (got, expected) in pairs.items():
        yield row(name, got == expected, f"the table says {got!r}, the declaration {expected!r}; build it again")
    missing = [
        label(types)
        for types in choices(operator)
        if not any(k.dtypes == tuple((d.code, d.bits) for d in types.values()) for k in found.kernels)
    ]
    yield row("kernels", not missing, f"no kernel for {', '.join(missing)}")
    yield row("content", *_content(operator, loaded))


def _content(operator: Operator, loaded: LoadedLibrary) -> tuple[bool, str]:
    """Whether the library is what the sources say now."""
    if loaded.path is None:
        return True, ""
    # What else lies in the library counts too; its table has the order of the plan that it was built by.
    held = tuple(registry.get(o.domain, o.name, o.since_version) for o in loaded.operators.values())
    now = current_content(replace(plan_library([operator]), operators=held), loaded.path)
    if now is None or now == loaded.content_hash:
        return True, ""
    return False, (
        f"it was built from other sources (content {loaded.content_hash[:12]}, the sources now give {now[:12]}): "
        "what is checked here is not what the files say; start a new process, or run opforge build"
    )


def owned(operator: Operator, host: Host, seed: int) -> Iterator[Row]:
    """Inputs are left as they are, and outputs are memory of their own."""
    for types in choices(operator):
        found = ""
        for case in cases_of(operator):
            inputs = arrays(operator, case, types, seed=seed)
            before = [None if value is None else value.tobytes() for value in inputs]
            announce("ownership", case.name, host.name, label(types))
            outputs = host.compute(operator, inputs, case.attributes)
            found = _touched(operator, inputs, before) or _shared(operator, inputs, outputs)
            if found:
                found = f"case {case.name}: {found}"
                break
        yield Row("ownership", "", host.name, label(types), not found, found)


def _touched(operator: Operator, inputs: Sequence[Array | None], before: Sequence[bytes | None]) -> str:
    for index, (value, bits) in enumerate(zip(inputs, before, strict=True)):
        if value is not None and value.tobytes() != bits:
            name = operator.signature.inputs[min(index, len(operator.signature.inputs) - 1)].name
            return f"the call changed its input {name}; a kernel writes its outputs only"
    return ""


def _shared(operator: Operator, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> str:
    for k, output in enumerate(outputs):
        others = [(f"input {p}", v) for p, v in enumerate(inputs)] + [(f"output {p}", outputs[p]) for p in range(k)]
        for name, other in others:
            if other is not None and np.may_share_memory(output, other):
                return f"output {k} shares memory with {name}; a change of one would change the other"
    return ""


def leaks(operator: Operator, host: Host, seed: int, forwards: int) -> Iterator[Row]:
    """Memory after many calls that are recorded for a backward pass which never comes."""
    point = _largest(operator, seed)
    if point is None:
        return
    case, inputs, types = point
    announce("leaks", case.name, host.name, label(types))
    if host.watch is not None and operator.differentiable:
        call = host.watch(operator, inputs, case.attributes)
    else:

        def call() -> None:
            host.compute(operator, inputs, case.attributes)

    for _ in range(_WARM):
        call()
    gc.collect()
    before = bytes_in_use()
    for _ in range(forwards):
        call()
    gc.collect()
    grown = bytes_in_use() - before
    own = sum(value.nbytes for value in inputs if value is not None)
    bad = grown > _SLACK + forwards * own / 4
    detail = (
        f"{forwards} calls without a backward pass leave {grown / 2**20:.1f} MiB behind, {grown / forwards:.0f} bytes "
        f"each (the inputs have {own}): what a call saves is never freed; save tensors with save_for_backward, not on "
        "the context"
    )
    yield Row("leaks", f"{forwards} calls", host.name, label(types), not bad, detail if bad else "")


def _largest(operator: Operator, seed: int) -> tuple[Case, list[Array | None], Mapping[str, DType]] | None:
    types = widest(operator)
    points = [(case, arrays(operator, case, types, seed=seed)) for case in cases_of(operator)]
    sizes = [sum(v.nbytes for v in inputs if v is not None) for _, inputs in points]
    fitting = [(size, k) for k, size in enumerate(sizes) if 0 < size <= 1 << 20]
    if not fitting:
        return None
    _, k = max(fitting)
    return *points[k], types


def node(operator: Operator, seed: int) -> Iterator[Row]:
    """The ONNX node: its domain is imported in the operator's version, and attributes come back as they were."""
    from onnx import helper

    from opforge.onnx.checker import custom_problems

    types = widest(operator)
    for case in cases_of(operator):
        inputs = arrays(operator, case, types, seed=seed)
        if all(value is None or value.size for value in inputs):
            break
    try:
        model, _, _ = case_model(operator, inputs, case.attributes)
    except OpforgeError as problem:
        yield Row("ONNX node", "", "", "", False, str(problem))
        return
    problems = "; ".join(str(problem) for problem in custom_problems(model))
    imported = {entry.domain: entry.version for entry in model.opset_import}
    if imported.get(operator.domain) != operator.since_version:
        problems += f"; the domain is imported as {imported.get(operator.domain)}, not {operator.since_version}"
    held = next(n for n in model.graph.node if n.domain == operator.domain)
    back = operator.coerce({a.name: _plain(helper.get_attribute_value(a)) for a in held.attribute})
    given = operator.coerce(dict(case.attributes))
    wrong = [name for name, value in given.items() if back[name] != value]
    if wrong:
        problems += "; attributes change on the way: " + ", ".join(f"{n} {given[n]!r} -> {back[n]!r}" for n in wrong)
    yield Row("ONNX node", "domain, version, attributes", "", "", not problems, problems.removeprefix("; "))


def _plain(value: object) -> object:
    """Text is bytes in an ONNX attribute, and lists may be containers of its own."""
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, list | tuple) or type(value).__name__.startswith("Repeated"):
        return [_plain(item) for item in value]  # type: ignore[attr-defined]
    return value
