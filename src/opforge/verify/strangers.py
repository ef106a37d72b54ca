"""Checks of operators that opforge did not make: a function and its reference, held against each other.

A stranger is described as an `Operator` that is registered nowhere, so that the same checks serve it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from opforge.errors import ArgumentError, UnsupportedError
from opforge.schema import DType, Operator
from opforge.verify import _stranger_checks
from opforge.verify._executed import output_list
from opforge.verify._node_checks import node_parts
from opforge.verify.cases import Case, Tolerance, give_cases
from opforge.verify.checking import CheckReport, collect
from opforge.verify.hosts import Host
from opforge.verify.levels import level_named

__all__ = ["check_function", "check_node", "describe", "torch_operator"]

Array = np.ndarray[Any, Any]
_KINDS: tuple[tuple[type, str], ...] = ((bool, "bool"), (int, "int"), (float, "float"), (str, "string"))


def check_function(
    function: Any,  # noqa: ANN401 - whatever PyTorch calls
    reference: Callable[..., Any],
    cases: Sequence[Any],
    *,
    level: str = "default",
    seed: int = 0,
    name: str = "",
    dtypes: Sequence[str] = ("f32", "f64"),
    tolerances: Mapping[str, tuple[float, float]] | None = None,
    differentiable: bool = True,
    deterministic: bool = True,
    nan: str = "propagate",
    report: CheckReport | None = None,
) -> CheckReport:
    """Check a function of PyTorch tensors that somebody else made.

    Checked are values in every dtype and memory layout against the reference in float64, NaN and infinities, first
    and second derivatives against finite differences, the raw results of the backward function (how many, which
    shapes and dtypes) before autograd hides them, gradients of stride 0, the fake kernel of a registered operator
    against the real one, PyTorch's own ``opcheck``, ownership of memory, leaks, and equal bits on every run.

    Args:
        function: a ``torch.autograd.Function``, an operator of ``torch.ops`` or ``torch.library``, or a function.
        reference: takes float64 (or integer, bool) arrays, attributes by name, and gives arrays.
        cases: inputs: each a tuple of arrays (None where an optional one is absent), or a mapping with "inputs",
            "attributes" and "name". Floating arrays are cast to each of ``dtypes``.
        level: "quick", "default" or "deep".
        seed: of drawn directions and gradients.
        name: in the report; the function's own by default.
        dtypes: floating dtypes that the function is meant to serve.
        tolerances: by dtype, relative and absolute; by default those of opforge's operators.
        differentiable: False where gradients are not meant to exist.
        deterministic: False where equal calls may give different bits.
        nan: "propagate", or "ignore" where NaN need not arrive in the outputs.
        report: the report to fill, instead of a new one.

    Raises:
        ArgumentError: no cases, or cases that do not fit each other.
    """
    strangers = import_module("opforge.frameworks.torch._strangers")
    stranger = strangers.Stranger.of(function)
    operator = describe(
        name or stranger.name, reference, cases, dtypes, tolerances, differentiable=differentiable,
        deterministic=deterministic, nan=nan,
    )  # fmt: skip
    report = CheckReport(name or stranger.name, level, seed) if report is None else report
    host = _host(stranger)
    for title, rows in _stranger_checks.torch_parts(operator, stranger, host, level_named(level), seed):
        collect(report, title, rows)
    return report


def check_node(
    target: str,
    reference: Callable[..., Any],
    cases: Sequence[Any],
    *,
    library: str | Path,
    level: str = "default",
    seed: int = 0,
    version: int = 1,
    dtypes: Sequence[str] = ("f32",),
    tolerances: Mapping[str, tuple[float, float]] | None = None,
    deterministic: bool = True,
    nan: str = "propagate",
    report: CheckReport | None = None,
) -> CheckReport:
    """Check a custom operator of ONNX Runtime that somebody else made, as a model of one node.

    Checked are the library (its entry symbol, the version of the API that it asks for, the operators that it
    registers), values in every dtype against the reference in float64, NaN and infinities, and equal bits on every
    run, from several threads at once.

    Args:
        target: ``domain::Name``.
        reference: takes float64 (or integer, bool) arrays, attributes by name, and gives arrays.
        cases: as of `check_function`; attributes become those of the node.
        library: the shared object with the custom operators.
        level: "quick", "default" or "deep".
        seed: of drawn values.
        version: of the domain, as the model imports it.
        dtypes: floating dtypes that the operator is meant to serve.
        tolerances: by dtype, relative and absolute.
        deterministic: False where equal calls may give different bits.
        nan: "propagate", or "ignore" where NaN need not arrive in the outputs.
        report: the report to fill, instead of a new one.

    Raises:
        ArgumentError: no cases, or cases that do not fit each other, or a target that is no ``domain::Name``.
    """
    domain, colons, name = target.partition("::")
    if not colons:
        raise ArgumentError("this is no operator of ONNX", where="check", expected="domain::Name", got=target)
    operator = describe(
        name, reference, cases, dtypes, tolerances, domain=domain, version=version, differentiable=False,
        deterministic=deterministic, nan=nan,
    )  # fmt: skip
    report = CheckReport(target, level, seed) if report is None else report
    for title, rows in node_parts(operator, Path(library), level_named(level), seed):
        collect(report, title, rows)
    return report


def torch_operator(path: str, library: str | Path | None = None) -> Any:  # noqa: ANN401 - an operator of torch.ops
    """Return the operator ``torch.ops.namespace.name``, after loading the library that registers it.

    Raises:
        UnsupportedError: the library does not load.
        MissingOperatorError: nothing is registered under the name.
    """
    strangers = import_module("opforge.frameworks.torch._strangers")
    if library is not None:
        strangers.load_extension(Path(library))
    return strangers.find_overload(path)


def _host(stranger: Any) -> Host:  # noqa: ANN401 - a Stranger of the torch folder
    arrays = import_module("opforge.frameworks.torch._arrays")

    def with_stranger(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(_operator: Operator, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            try:
                return function(stranger, *arguments, **options)
            except Exception as problem:  # a stranger's code raises what it likes
                text = f"the call raises {type(problem).__name__}"
                raise UnsupportedError(text, where=stranger.name, got=str(problem)) from problem

        return call

    return Host(
        "torch",
        with_stranger(arrays.compute),
        with_stranger(arrays.gradients),
        modes=arrays.MODES if stranger.overload is not None else ("eager",),
        watch=with_stranger(arrays.watch),
        second=with_stranger(arrays.second_gradients),
    )


def describe(
    name: str,
    reference: Callable[..., Any],
    cases: Sequence[Any],
    dtypes: Sequence[str],
    tolerances: Mapping[str, tuple[float, float]] | None = None,
    *,
    domain: str = "stranger",
    version: int = 1,
    differentiable: bool = True,
    deterministic: bool = True,
    nan: str = "propagate",
) -> Operator:
    """Make the operator that the checks read: its signature follows from the cases and what the reference gives.

    Raises:
        ArgumentError: no cases, or cases that do not fit each other.
    """
    given = [_normal(case, k) for k, case in enumerate(cases)]
    if not given:
        raise ArgumentError("no cases are given", where=name, expected="at least one tuple of input arrays")
    if len({len(inputs) for _, inputs, _ in given}) > 1:
        raise ArgumentError(
            "the cases have different numbers of inputs", where=name, got=[len(inputs) for _, inputs, _ in given],
            hint="give None for an input that is absent",
        )  # fmt: skip
    _, first, attributes = given[0]
    with np.errstate(all="ignore"):
        outputs = output_list(reference(*(_wide(value) for value in first), **attributes))
    parameters = ", ".join(_parameter(k, [inputs[k] for _, inputs, _ in given]) for k in range(len(first)))
    declared = ", ".join(f"{key}: {_kind(key, value, name)}" for key, value in attributes.items())
    results = ", ".join(f"y{k}: {_type(out)}[{', '.join('_' * out.ndim)}]" for k, out in enumerate(outputs))
    joint = f"; {declared}" if declared else ""
    generic = any(value is not None and value.dtype.kind not in "biu" for _, inputs, _ in given for value in inputs)
    operator = Operator(
        domain,
        camel_case(name),
        f"({parameters}{joint}) -> ({results})",
        types={"T": list(dtypes)} if generic else {},
        since_version=version,
        host_name="stranger",
        differentiable=differentiable,
        deterministic=deterministic,
        nan_policy=nan,
        reference_function=reference,
        module="stranger",
        declared_at="",
    )
    made = []
    for title, inputs, own in given:
        specs = {f"x{k}": {"values": value} for k, value in enumerate(inputs) if value is not None}
        made.append(Case(title, specs, own))
    rows = {key: Tolerance(r, a, "given") for key, (r, a) in (tolerances or {}).items()}
    give_cases(operator, made, rows)
    return operator


def camel_case(name: str) -> str:
    """Return a name that an operator may have: ``my::relu_6`` -> ``MyRelu6``."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", name) if word]
    text = "".join(word[0].upper() + word[1:] for word in words)
    return text if text[:1].isalpha() else f"Op{text}"


def _normal(case: Any, number: int) -> tuple[str, list[Array | None], dict[str, Any]]:  # noqa: ANN401
    if isinstance(case, Mapping):
        inputs, attributes, title = case["inputs"], dict(case.get("attributes", {})), case.get("name", number)
    else:
        inputs, attributes, title = case if isinstance(case, tuple | list) else (case,), {}, number
    return str(title), [None if value is None else np.asarray(value) for value in inputs], attributes


def _wide(value: Array | None) -> Array | None:
    return value if value is None or value.dtype.kind in "biu" else value.astype(np.float64)


def _type(value: Array) -> str:
    return "T" if value.dtype.kind not in "biu" else DType.parse(value.dtype).name


def _parameter(index: int, values: Sequence[Array | None]) -> str:
    """Declare one input: its rank where all cases agree in it, else any."""
    present = [value for value in values if value is not None]
    if not present:
        raise ArgumentError("an input is absent in every case", where=f"input {index}", hint="leave it out")
    if len({_type(value) for value in present}) > 1:
        raise ArgumentError("an input changes its kind of dtype", where=f"input {index}",
                            got=[str(value.dtype) for value in present])  # fmt: skip
    ranks = {value.ndim for value in present}
    dims = ", ".join("_" * present[0].ndim) if len(ranks) == 1 else f"*S{index}"
    return f"x{index}{'?' if len(present) < len(values) else ''}: {_type(present[0])}[{dims}]"


def _kind(key: str, value: Any, where: str) -> str:  # noqa: ANN401
    items = list(value) if isinstance(value, list | tuple) else [value]
    for kind, text in _KINDS:
        if items and all(isinstance(item, kind) for item in items):
            return f"{text}s" if isinstance(value, list | tuple) else text
    raise ArgumentError(
        "an attribute of a kind that cannot be checked", where=f"{where}, {key}",
        expected="bool, int, float, str, or a list of one of them", got=type(value).__name__,
        hint="bind it in a function around the operator",
    )  # fmt: skip
