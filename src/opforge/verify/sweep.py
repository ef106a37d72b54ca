"""Cases drawn from the schema: every rank, each dimension empty and 1 in turn, inputs absent, several tensors.

An integer input may have to obey rules that a signature does not say: indices lie in a range, pointers ascend. Only
the author knows them; a kernel's `cases.py` says them by ``DRAWS``, under the operator's name a function
``draw(rng, sizes)``. It gets a NumPy generator and the drawn size of each name of the signature, and returns the
arrays of such inputs by name (it may give others, and sizes that follow from the data).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from opforge.errors import SchemaError
from opforge.schema import Operator, Parameter
from opforge.schema.author import author_function
from opforge.schema.dims import AnyDim, Broadcast, Dim, DimensionError, Rest, evaluate, linear, names
from opforge.verify.cases import Case, cases_of, draw_of

__all__ = ["drawn_cases", "size_names", "sized_case", "unruly"]

Array = np.ndarray[Any, Any]
_SIZES = (2, 3, 5, 4, 7, 17, 33)
_RANKS = (1, 0, 2, 3, 4)
_LARGEST = 70_000
"""Elements of a drawn tensor; more only cost time."""


def unruly(operator: Operator) -> list[str]:
    """Return the integer inputs of a kernel whose values only its author can draw, and has not said how."""
    if operator.is_formula or draw_of(operator) is not None:
        return []
    found = []
    for parameter in operator.signature.inputs:
        dtypes = operator.types.get(parameter.type) or (parameter.dtype,)
        if any(dtype is not None and not dtype.is_float and dtype.name != "bool" for dtype in dtypes):
            found.append(parameter.name)
    return found


def drawn_cases(operator: Operator, count: int, seed: int) -> list[Case]:
    """Draw up to ``count`` cases; none where `unruly` names inputs."""
    if unruly(operator):
        return []
    attributes = [dict(case.attributes) for case in cases_of(operator)] or [{}]
    if all(not attribute.required for attribute in operator.signature.attributes):
        attributes = [{}, *attributes]
    found: list[Case] = []
    for k, (title, sizes) in enumerate(_sizes(operator, count, seed)):
        rng = np.random.default_rng([seed, 23, k])
        case = sized_case(operator, title, sizes, attributes[k % len(attributes)], k, rng)
        if case is not None:
            found.append(case)
    return found


def _sizes(operator: Operator, count: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give values of all names: ranks in turn, then each name empty and 1, then at random."""
    plain, together = size_names(operator)
    runs = list(together)
    rng = np.random.default_rng([seed, 29])

    def drawn(rank: int) -> dict[str, Any]:
        sizes: dict[str, Any] = {name: int(rng.choice(_SIZES)) for name in plain}
        whole = [int(rng.choice(_SIZES[:5])) for _ in range(rank)]
        for name in runs:
            sizes[name] = _part(whole, rng) if together[name] else [int(rng.choice(_SIZES[:5])) for _ in whole]
        return sizes

    made = 0
    for rank in _RANKS if runs else (1,):
        yield f"drawn, rank {rank}" if runs else "drawn", drawn(rank)
        made += 1
    for name in plain:
        for value, word in ((0, "empty"), (1, "one")):
            if made < count:
                yield f"drawn, {name} {word}", {**drawn(1), name: value}
                made += 1
    if runs and made < count:
        yield "drawn, empty run", {**drawn(2), **{name: [3, 0] for name in runs}}
        made += 1
    while made < count and (plain or runs):
        yield f"drawn {made}", drawn(int(rng.integers(0, 5)))
        made += 1


def size_names(operator: Operator) -> tuple[list[str], dict[str, bool]]:
    """Return the names of single dimensions, and those of runs with whether they are broadcast with each other."""
    inputs = operator.signature.inputs
    attributes = {attribute.name for attribute in operator.signature.attributes}
    joined = {n for p in operator.signature.outputs for d in p.dims if isinstance(d, Broadcast) for n in d.names}
    runs = {dim.name: dim.name in joined for p in inputs for dim in p.dims if isinstance(dim, Rest)}
    every = dict.fromkeys(n for p in inputs for dim in p.dims for n in names(dim))
    return [name for name in every if name not in runs and name not in attributes], runs


def _part(whole: list[int], rng: np.random.Generator) -> list[int]:
    """Give a shape that broadcasts to ``whole``: leading dimensions left out, others 1."""
    kept = whole[int(rng.integers(0, len(whole) + 1)) :] if rng.random() < 0.3 else whole
    return [1 if rng.random() < 0.25 else size for size in kept]


def _drawn_by_author(
    operator: Operator, draw: Callable[..., Mapping[str, Any]], rng: np.random.Generator, sizes: Mapping[str, Any]
) -> Mapping[str, Any]:
    where = f"{operator.qualified_name}, DRAWS in cases.py"
    expected = "arrays by the names of inputs"
    with author_function("the function that draws inputs raises", where, f"{expected}, for the sizes {dict(sizes)}"):
        given: Any = draw(rng, dict(sizes))
    names = [p.name for p in operator.signature.inputs]
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise SchemaError(
            "the function that draws inputs gives something else",
            where=where,
            expected=f"{expected}: {', '.join(names)}",
            got=", ".join(map(str, given)) if isinstance(given, Mapping) else repr(given)[:100],
        )
    return given


def sized_case(
    operator: Operator,
    title: str,
    sizes: Mapping[str, Any],
    attributes: Mapping[str, Any],
    number: int,
    rng: np.random.Generator,
) -> Case | None:
    """Make the case in which each name of the signature has this size; None where they do not go together.

    Args:
        operator: whose case it is.
        title: of the case.
        sizes: a number for each single dimension, a list for each run.
        attributes: of the call.
        number: odd ones leave optional inputs out; the count of variadic tensors changes with it.
        rng: for what the author draws, and dimensions without a name.
    """
    draw = draw_of(operator)
    known = {**operator.coerce(attributes), **sizes}
    given: Mapping[str, Any] = {} if draw is None else _drawn_by_author(operator, draw, rng, sizes)
    if draw is not None:
        known.update(_implied(operator, given))
    inputs: dict[str, Any] = {}
    for parameter in operator.signature.inputs:
        if parameter.name in given:
            inputs[parameter.name] = {"values": np.asarray(given[parameter.name])}
            continue
        if parameter.optional and number % 2:
            continue
        shape = _shape(parameter, known, rng)
        if shape is None:
            return None
        spec = {"shape": shape, "normal": 2.0 if operator.is_formula else 1.0}
        inputs[parameter.name] = [spec] * (1 + number % 3) if parameter.variadic else spec
    return Case(title, inputs, attributes)


def _implied(operator: Operator, given: Mapping[str, Any]) -> dict[str, int]:
    """Sizes that the shapes of given arrays say: of dimensions that are a name, or ``a*n+b``."""
    found: dict[str, int] = {}
    for parameter in operator.signature.inputs:
        if parameter.name not in given or parameter.rank is None:
            continue
        for dim, size in zip(parameter.dims, np.shape(given[parameter.name]), strict=True):
            if isinstance(dim, AnyDim | Rest | Broadcast):
                continue
            form = linear(dim)
            if form is not None:
                found[form[1]] = (size - form[2]) // form[0]
    return found


def _shape(parameter: Parameter, sizes: Mapping[str, Any], rng: np.random.Generator) -> list[int] | None:
    """Give the parameter's shape, or None where the sizes make none."""
    shape: list[int] = []
    for dim in parameter.dims:
        try:
            shape += _extent(dim, sizes, rng)
        except DimensionError:
            return None
    fits = all(size >= 0 for size in shape) and int(np.prod(shape, dtype=np.int64)) <= _LARGEST
    return shape if fits else None


def _extent(dim: Dim, sizes: Mapping[str, Any], rng: np.random.Generator) -> list[int]:
    if isinstance(dim, AnyDim):
        return [int(rng.choice(_SIZES[:4]))]
    if isinstance(dim, Rest):
        return list(sizes[dim.name])
    assert not isinstance(dim, Broadcast), "stands in outputs only"
    return [int(evaluate(dim, sizes))]
