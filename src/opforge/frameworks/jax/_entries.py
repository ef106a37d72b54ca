"""Operators that are registered with JAX: what a kernel library says of them, read once."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from opforge.build import LoadedLibrary, library_for
from opforge.build.abi import OPERATOR_FORMULA, OPERATOR_PURE
from opforge.build.library import LibraryOperator
from opforge.errors import ArgumentError
from opforge.frameworks.jax._adapter import adapter
from opforge.schema import DType, GradientProgram, Operator, Signature, parse_types

__all__ = ["Entry", "all_entries", "entry_for", "entry_of", "register_library"]


@dataclass(frozen=True, eq=False)
class Entry:
    """An operator in JAX.

    Attributes:
        key: ``domain::Name:version``.
        where: ``domain::Name``, for messages.
        signature: parsed signature.
        types: dtypes of each type variable.
        gradient: gradient program, or None = not differentiable.
        flags: OPFORGE_OPERATOR bits.
        library: the operator in its kernel library.
    """

    key: str
    where: str
    signature: Signature
    types: dict[str, tuple[DType, ...]]
    gradient: GradientProgram | None
    flags: int
    library: LibraryOperator = field(repr=False)

    @property
    def is_formula(self) -> bool:
        """Whether it is elementwise with broadcasting."""
        return bool(self.flags & OPERATOR_FORMULA)

    @property
    def is_pure(self) -> bool:
        """Whether equal inputs give equal outputs and nothing else happens."""
        return bool(self.flags & OPERATOR_PURE)


_lock = threading.RLock()
_entries: Final[dict[str, Entry]] = {}


def register_library(library: LoadedLibrary) -> list[Entry]:
    """Register every operator of a kernel library. What is registered already stays as it is.

    Raises:
        ArgumentError: another operator of the same name and version is registered; the message names both.
    """
    with _lock:
        return [_register(operator) for operator in library.operators.values()]


def _register(operator: LibraryOperator) -> Entry:
    known = _entries.get(operator.key)
    if known is not None:
        if known.library.schema_hash != operator.schema_hash:
            raise ArgumentError(
                "another operator of this name is registered with JAX",
                where=operator.key,
                expected=f"{known.signature} ({known.library.schema_hash[:12]})",
                got=f"{operator.signature} ({operator.schema_hash[:12]})",
                hint="raise since= for a changed operator, or restart the process (the notebook's kernel)",
            )
        return known
    where = f"{operator.domain}::{operator.name}"
    signature = Signature.parse(operator.signature, where=operator.key)
    adapter().define(operator.address)
    entry = _entries[operator.key] = Entry(
        key=operator.key,
        where=where,
        signature=signature,
        types=parse_types(operator.types, signature, where=where),
        gradient=GradientProgram.parse(operator.gradient, where=where) if operator.gradient else None,
        flags=operator.flags,
        library=operator,
    )
    return entry


def entry_for(operator: Operator) -> Entry:
    """Return the entry of an operator, building and registering its library where that has not happened yet."""
    entry = _entries.get(operator.key)
    if entry is None or entry.library.schema_hash != operator.schema_hash:
        register_library(library_for([operator]))  # says so where another operator has the name
        entry = _entries[operator.key]
    return entry


def entry_of(key: str) -> Entry:
    """Return the registered operator ``domain::Name:version``, which gradient programs name."""
    entry = _entries.get(key)
    if entry is None:
        raise ArgumentError("the operator is not registered with JAX", where=key, hint="call opforge.jax.register")
    return entry


def all_entries() -> list[Entry]:
    """Return what is registered, gradient operators included."""
    return list(_entries.values())
