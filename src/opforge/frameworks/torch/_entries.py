"""Operators that are registered with PyTorch in this process, and how a kernel library's operators get there."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from opforge.build.abi import OPERATOR_FORMULA, OPERATOR_GRADIENT
from opforge.build.library import LibraryOperator, LoadedLibrary
from opforge.errors import ArgumentError
from opforge.frameworks.torch._adapter import adapter
from opforge.schema import AnyDim, DType, GradientProgram, Signature, parse_types, registry, snake_case

__all__ = ["Entry", "all_entries", "entry_of", "find_entry", "register_library", "register_operators", "torch_name"]


@dataclass
class Entry:
    """One registered operator.

    Attributes:
        key: ``domain::Name:version``.
        where: ``domain::Name``, for messages.
        namespace: ``torch.ops.<namespace>``.
        name: its name there.
        overload: what to call.
        signature: parsed signature.
        types: dtypes of each type variable.
        gradient: gradient program, or None = not differentiable.
        autocast: rule under autocast.
        flags: OPFORGE_OPERATOR bits.
        library: the operator in its kernel library.
    """

    key: str
    where: str
    namespace: str
    name: str
    overload: Any
    signature: Signature
    types: dict[str, tuple[DType, ...]]
    gradient: GradientProgram | None
    autocast: str
    flags: int
    library: LibraryOperator = field(repr=False)

    @property
    def is_formula(self) -> bool:
        """Whether it is elementwise with broadcasting."""
        return bool(self.flags & OPERATOR_FORMULA)

    @property
    def torch_name(self) -> str:
        """``namespace::name``."""
        return f"{self.namespace}::{self.name}"

    @property
    def data_dependent(self) -> bool:
        """Whether an output's size depends on data."""
        return any(isinstance(dim, AnyDim) for output in self.signature.outputs for dim in output.dims)

    @functools.cached_property
    def plain(self) -> bool:
        """Whether every input and output is one tensor."""
        return not any(p.optional or p.variadic for p in (*self.signature.inputs, *self.signature.outputs))


_lock = threading.RLock()
_entries: dict[str, Entry] = {}
_names: dict[str, str] = {}  # namespace::name -> key
_torch_libraries: Final[
    dict[str, torch.library.Library]
] = {}  # what Python registers; PyTorch drops it with the object


def torch_name(domain: str, name: str, version: int) -> tuple[str, str]:
    """Give namespace and name in ``torch.ops``: the newest version is plain, older ones end in ``_v<version>``."""
    known = registry.find(domain, name, version) if registry.versions(domain, name) else None
    host_name = known.host_name if known is not None else snake_case(name)
    base = name
    while base.endswith("Grad") and not registry.versions(domain, base):
        base = base.removesuffix("Grad")
    newest = max(registry.versions(domain, base) or [version])
    return domain.replace(".", "_"), host_name if version >= newest else f"{host_name}_v{version}"


def register_library(library: LoadedLibrary) -> list[Entry]:
    """Register every operator of a kernel library. What is registered already stays as it is."""
    return register_operators(library.operators.values())


def register_operators(operators: Iterable[LibraryOperator]) -> list[Entry]:
    """Register these operators of a kernel library."""
    with _lock:
        return [_register(operator) for operator in operators]


def _register(operator: LibraryOperator) -> Entry:
    known = _entries.get(operator.key)
    if known is not None:
        if known.library.schema_hash != operator.schema_hash:
            raise ArgumentError(
                "another operator of this name is registered with PyTorch",
                where=operator.key,
                expected=f"{known.signature} ({known.library.schema_hash[:12]})",
                got=f"{operator.signature} ({operator.schema_hash[:12]})",
                hint="raise since= for a changed operator, or restart the process (the notebook's kernel)",
            )
        return known
    namespace, name = torch_name(operator.domain, operator.name, operator.since_version)
    if _names.get(f"{namespace}::{name}", operator.key) != operator.key:
        # An older version took the plain name before this one was declared; names of graphs in use stay what they are.
        name = f"{name}_v{operator.since_version}"
    signature = Signature.parse(operator.signature, where=operator.key)
    where = f"{operator.domain}::{operator.name}"
    adapter().define(operator.address, namespace, name)
    entry = Entry(
        key=operator.key,
        where=where,
        namespace=namespace,
        name=name,
        overload=getattr(getattr(torch.ops, namespace), name).default,
        signature=signature,
        types=parse_types(operator.types, signature, where=where),
        gradient=GradientProgram.parse(operator.gradient, where=where) if operator.gradient else None,
        autocast=operator.autocast,
        flags=operator.flags,
        library=operator,
    )
    _entries[operator.key] = entry
    _names[entry.torch_name] = operator.key
    _complete(entry)
    return entry


def _complete(entry: Entry) -> None:
    """Register what the adapter leaves to Python."""
    from opforge.frameworks.torch import _autocast, _autograd, _batching, _decompose, _fake

    library: Any = _torch_libraries.get(entry.namespace)
    if library is None:
        make: Any = torch.library.Library
        library = _torch_libraries[entry.namespace] = make(entry.namespace, "FRAGMENT")
    stable = adapter().route == "stable"
    if stable or entry.data_dependent:  # a size that depends on data is made by a fake kernel in Python only
        _fake.register(entry, library)
    if stable:
        _autograd.register(entry, library)
        _autocast.register(entry, library)
    _batching.register(entry, library)
    _decompose.register(entry)


def find_entry(key: str) -> Entry | None:
    """Return the registered operator ``domain::Name:version``, or None."""
    return _entries.get(key)


def entry_of(key: str) -> Entry:
    """Return the registered operator ``domain::Name:version``, which gradient programs name."""
    entry = _entries.get(key)
    if entry is None:
        raise ArgumentError(
            "the operator is not registered with PyTorch", where=key, hint="call opforge.torch.register"
        )
    return entry


def all_entries() -> list[Entry]:
    """Return what is registered, gradient operators included."""
    return list(_entries.values())


def is_gradient(entry: Entry) -> bool:
    """Whether it is a generated gradient operator."""
    return bool(entry.flags & OPERATOR_GRADIENT)
