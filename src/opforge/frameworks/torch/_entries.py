"""Operators that are registered with PyTorch in this process."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

import torch

from opforge.build.library import LibraryOperator
from opforge.frameworks import _entries
from opforge.frameworks._devices import device_loader
from opforge.frameworks._entries import Entries, described
from opforge.frameworks.torch._adapter import adapter, set_device_loader
from opforge.schema import registry, snake_case

__all__ = ["ENTRIES", "Entry", "all_entries", "torch_name"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Entry(_entries.Entry):
    """One registered operator.

    Attributes:
        namespace: ``torch.ops.<namespace>``.
        name: its name there.
        overload: what to call.
        autocast: rule under autocast.
    """

    namespace: str
    name: str
    overload: Any
    autocast: str

    @property
    def torch_name(self) -> str:
        """``namespace::name``."""
        return f"{self.namespace}::{self.name}"

    @functools.cached_property
    def plain(self) -> bool:
        """Whether every input and output is one tensor."""
        return not any(p.optional or p.variadic for p in (*self.signature.inputs, *self.signature.outputs))


_names: dict[str, str] = {}  # namespace::name -> key
_torch_libraries: Final[
    dict[str, torch.library.Library]
] = {}  # key -> what Python registers; PyTorch drops it with the object


def torch_name(domain: str, name: str, version: int) -> tuple[str, str]:
    """Give namespace and name in ``torch.ops``: the newest version is plain, older ones end in ``_v<version>``."""
    known = registry.find(domain, name, version) if registry.versions(domain, name) else None
    host_name = known.host_name if known is not None else snake_case(name)
    base = name
    while base.endswith("Grad") and not registry.versions(domain, base):
        base = base.removesuffix("Grad")
    newest = max(registry.versions(domain, base) or [version])
    return domain.replace(".", "_"), host_name if version >= newest else f"{host_name}_v{version}"


def _make(operator: LibraryOperator) -> Entry:
    namespace, name = torch_name(operator.domain, operator.name, operator.since_version)
    if _names.get(f"{namespace}::{name}", operator.key) != operator.key:
        # An older version took the plain name before this one was declared; names of graphs in use stay what they are.
        name = f"{name}_v{operator.since_version}"
    fields = described(operator)
    adapter().define(operator.address, namespace, name)
    overload = getattr(getattr(torch.ops, namespace), name).default
    entry = Entry(**fields, namespace=namespace, name=name, overload=overload, autocast=operator.autocast)
    _names[entry.torch_name] = operator.key
    return entry


def _complete(entry: Entry) -> None:
    """Register what the adapter leaves to Python."""
    from opforge.frameworks.torch import _autocast, _autograd, _batching, _decompose, _fake

    make: Any = torch.library.Library
    library: Any = make(entry.namespace, "FRAGMENT")
    stable = adapter().route == "stable"
    try:
        if stable or entry.data_dependent:  # a size that depends on data is made by a fake kernel in Python only
            _fake.register(entry, library)
        if stable:
            _autograd.register(entry, library)
            _autocast.register(entry, library)
        _batching.register(entry, library)
        _decompose.register(entry)
    except BaseException:
        library._destroy()
        raise
    _torch_libraries[entry.key] = library


def _serve(entry: Entry, operator: LibraryOperator) -> None:
    adapter().define(operator.address, entry.namespace, entry.name)


ENTRIES: Final = Entries("PyTorch", "opforge.torch", _make, _complete, _serve)
all_entries = ENTRIES.all
set_device_loader(device_loader(ENTRIES))
