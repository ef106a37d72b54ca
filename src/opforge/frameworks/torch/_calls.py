"""Calls of operators on PyTorch tensors, and registration on the first of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch._ops import OpOverload, _OpNamespace

from opforge.build import LoadedLibrary
from opforge.errors import OpforgeError, UnsupportedError
from opforge.frameworks.torch import _accelerator
from opforge.frameworks.torch._adapter import adapter, last_failure
from opforge.frameworks.torch._entries import ENTRIES, Entry
from opforge.schema import Operator, registry
from opforge.schema.hosts import refuse_containers

__all__ = ["call", "declared", "decomposed", "publish", "register", "register_library", "specialize"]

_KINDS: Final = (torch.Tensor, torch.nn.Parameter)
_told_to_build = False


def register(operator: Operator) -> OpOverload:
    """Make the operator known to PyTorch as ``torch.ops.<namespace>.<host_name>``; doing it again changes nothing.

    The kernel library is compiled, or taken from the cache, here. Graphs saved by ``torch.export`` need this before
    they are loaded.

    Returns:
        The overload, e.g. ``torch.ops.com_example.custom_gelu.default``.
    """
    overload: OpOverload = _entry(operator).overload
    return overload


def register_library(library: LoadedLibrary) -> list[Entry]:
    """Make every operator of a kernel library known to PyTorch."""
    return ENTRIES.register_library(library)


def _entry(operator: Operator) -> Entry:
    entry = ENTRIES.find_declared(operator)
    if entry is None:
        entry = ENTRIES.of_operator(operator)
        function = _function(operator, entry)
        for kind in _KINDS:
            operator.set_route(kind, function)
        _build_for_next_time()
    return entry


def _build_for_next_time() -> None:
    global _told_to_build
    if not _told_to_build:
        _told_to_build = True
        if adapter().route == "stable":
            _accelerator.build_in_background()


def specialize(operator: Operator) -> Callable[..., Any]:
    """Return what a call with tensors in a row runs; see ``opforge.schema.hosts``."""
    return _function(operator, _entry(operator))


def call(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Compute the operator on arranged tensors: one entry per parameter, a tuple for the variadic one."""
    entry = _entry(operator)
    try:
        return entry.overload(*_convert(operator, tensors), **operator.coerce(attributes))
    except (RuntimeError, ValueError, TypeError) as error:
        raise _translate(error) from None


def decomposed(operator: Operator, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Compute a formula operator with PyTorch's own operators, on arranged tensors."""
    from opforge.codegen.torch_decomposition import decomposition

    formula: Any = operator.formula
    return decomposition(formula)(*_convert(operator, tensors), **operator.coerce(attributes))


def _function(operator: Operator, entry: Entry) -> Callable[..., Any]:
    overload = entry.overload
    compiling = torch.compiler.is_dynamo_compiling
    if entry.signature.inputs and entry.signature.inputs[-1].variadic:
        leading = len(entry.signature.inputs) - 1

        def variadic(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
            try:
                if attributes and not compiling():
                    attributes = operator.coerce(attributes)
                return overload(*tensors[:leading], list(tensors[leading:]), **attributes)
            except (RuntimeError, ValueError, TypeError) as error:
                return _second_try(operator, overload, tensors, attributes, error)

        return variadic

    if entry.signature.attributes:

        def with_attributes(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
            try:
                if compiling():
                    tensors = tuple(_convert(operator, tensors))
                elif attributes:
                    attributes = operator.coerce(attributes)
                return overload(*tensors, **attributes)
            except (RuntimeError, ValueError, TypeError) as error:
                return _second_try(operator, overload, tensors, attributes, error)

        return with_attributes

    def plain(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        if compiling():
            tensors = tuple(_convert(operator, tensors))
        try:
            return overload(*tensors, **attributes)
        except (RuntimeError, ValueError, TypeError) as error:
            return _second_try(operator, overload, tensors, attributes, error)

    return plain


def _second_try(
    operator: Operator, overload: OpOverload, tensors: Sequence[Any], attributes: Mapping[str, Any], error: Exception
) -> Any:  # noqa: ANN401
    """Say in our words what was wrong, or convert numbers and arrays that go along with tensors and call again."""
    if isinstance(error, OpforgeError):
        raise error
    known = last_failure()
    if known is not None and known.what in str(error):
        raise known from None
    arranged = operator.arrange(tensors, {})
    checked = operator.coerce(attributes)
    flat = [t for a in arranged for t in (a if isinstance(a, tuple) else (a,))]
    refuse_containers(operator, arranged)
    _refuse_layouts(operator, arranged)
    if all(t is None or isinstance(t, torch.Tensor) for t in flat):
        raise error
    try:
        return overload(*_convert(operator, arranged), **checked)
    except (RuntimeError, ValueError, TypeError) as second:
        raise _translate(second) from None


def _refuse_layouts(operator: Operator, arranged: Sequence[Any]) -> None:
    """Say which tensor is of a kind that PyTorch has no kernel of ours for, in place of its list of dispatch keys."""
    for parameter, value in zip(operator.signature.inputs, arranged, strict=True):
        for item in value if isinstance(value, tuple) else (value,):
            if not isinstance(item, torch.Tensor):
                continue
            for of_kind, words, hint in _LAYOUTS:
                if of_kind(item):
                    raise UnsupportedError(
                        "only dense tensors are computed with",
                        where=f"{operator.qualified_name}, argument {parameter.name}",
                        expected="a tensor of the layout torch.strided",
                        got=f"{words} ({item.layout})",
                        hint=hint,
                    )


_LAYOUTS: Final[Sequence[tuple[Callable[[torch.Tensor], bool], str, str]]] = (
    (lambda t: t.is_quantized, "a quantised tensor", "use t.dequantize()"),
    (lambda t: t.is_nested, "a nested tensor", "use t.to_padded_tensor(...), or call for each of t.unbind()"),
    (
        lambda t: t.layout is not torch.strided,
        "a tensor of another layout",
        "use t.to_dense(), or call on its values()",
    ),
)
"""Kinds of tensors that are refused: how each is told, its name, what to do."""


def _convert(operator: Operator, tensors: Sequence[Any]) -> list[Any]:
    """Turn numbers and arrays into tensors.

    A Python number takes the dtype that its type variable has elsewhere, and lies where the call runs: on CUDA where
    any tensor does, since one of no dimensions may stand on the CPU beside it. An array stays on the CPU: nothing
    moves data between devices unasked.
    """
    if all(isinstance(value, torch.Tensor) for value in tensors):
        return list(tensors)
    dtypes: dict[str, torch.dtype] = {}
    device: torch.device | None = None
    for parameter, value in zip(operator.signature.inputs, tensors, strict=True):
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, torch.Tensor):
                dtypes.setdefault(parameter.type, item.dtype)
                device = item.device if device is None or device.type == "cpu" else device

    def convert(value: Any, kind: str) -> Any:  # noqa: ANN401
        if value is None or isinstance(value, torch.Tensor):
            return value
        if isinstance(value, tuple):
            return [convert(item, kind) for item in value]
        if not isinstance(value, int | float):
            return torch.as_tensor(value)
        if device is not None and device.type != "cpu":  # by a kernel: nothing is copied behind a stream's back
            return torch.full((), value, dtype=dtypes.get(kind), device=device)
        return torch.as_tensor(value, dtype=dtypes.get(kind))

    return [convert(value, p.type) for p, value in zip(operator.signature.inputs, tensors, strict=True)]


def _translate(error: Exception) -> Exception:
    known = last_failure()
    return known if known is not None and known.what in str(error) else error


class _Namespace(_OpNamespace):
    """A namespace of ``torch.ops`` that registers a declared operator when it is first asked for."""

    __module__ = _OpNamespace.__module__  # saved graphs name operators by it

    def __getattr__(self, op_name: str) -> Any:  # noqa: ANN401
        try:
            return super().__getattr__(op_name)
        except AttributeError:
            operator = None if op_name.startswith("__") else declared(self.name, op_name)
            if operator is None:
                raise
        register(operator)
        return super().__getattr__(op_name)


def declared(namespace: str, name: str) -> Operator | None:
    """Find the declared operator that a name in ``torch.ops`` belongs to, its gradient operators' names included."""
    plain = re.sub(r"_v\d+$", "", name)
    version = int(name[len(plain) + 2 :]) if plain != name else None
    while True:
        found = [
            operator
            for operator in registry.operators(all_versions=True).values()
            if operator.host_namespace == namespace
            and operator.host_name == plain
            and version in (None, operator.since_version)
        ]
        if found:
            return max(found, key=lambda operator: operator.since_version)
        if not plain.endswith("_grad"):
            return None
        plain = plain.removesuffix("_grad")


def publish(operator: Operator) -> None:
    """Let ``torch.ops`` find the operator by name; nothing is compiled yet."""
    space = torch.ops.__dict__.get(operator.host_namespace)
    if space is None:
        setattr(torch.ops, operator.host_namespace, _Namespace(operator.host_namespace))
    elif type(space) is _OpNamespace:
        space.__class__ = _Namespace
