"""Operators that are registered with JAX."""

from __future__ import annotations

from typing import Final

from opforge.build.library import LibraryOperator
from opforge.frameworks._devices import device_loader
from opforge.frameworks._entries import Entries, Entry, described
from opforge.frameworks.jax._adapter import adapter

__all__ = ["ENTRIES", "Entry", "all_entries"]


def _make(operator: LibraryOperator) -> Entry:
    fields = described(operator)
    native = adapter()
    native.define(operator.address)
    if native.loader is None:
        native.set_loader(device_loader(ENTRIES))
    return Entry(**fields)


def _serve(_entry: Entry, operator: LibraryOperator) -> None:
    adapter().define(operator.address)


ENTRIES: Final = Entries("JAX", "opforge.jax", _make, serve=_serve)
all_entries = ENTRIES.all
