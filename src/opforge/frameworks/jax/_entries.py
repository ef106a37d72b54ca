"""Operators that are registered with JAX."""

from __future__ import annotations

from typing import Final

from opforge.build.library import LibraryOperator
from opforge.frameworks._entries import Entries, Entry, described
from opforge.frameworks.jax._adapter import adapter

__all__ = ["ENTRIES", "Entry", "all_entries"]


def _make(operator: LibraryOperator) -> Entry:
    fields = described(operator)
    adapter().define(operator.address)
    return Entry(**fields)


ENTRIES: Final = Entries("JAX", "opforge.jax", _make)
all_entries = ENTRIES.all
