"""Operators that are registered with a framework in this process: what hosts keep of each, and how they get there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from opforge.build import LoadedLibrary, library_for
from opforge.build.abi import OPERATOR_FORMULA, OPERATOR_PURE
from opforge.build.ahead import find_row
from opforge.build.device import Device, declaring, device_library, device_library_of_row
from opforge.build.library import LibraryOperator
from opforge.errors import ArgumentError, ToolchainError
from opforge.frameworks._programs import arranged
from opforge.schema import AnyDim, DType, GradientProgram, Operator, Signature, parse_types
from opforge.schema.describe import function_of

__all__ = ["Entries", "Entry", "described", "function_of_entry", "require_operator"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Entry:
    """An operator in a framework; hosts add what is their own.

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

    @property
    def data_dependent(self) -> bool:
        """Whether an output's size depends on data."""
        return any(isinstance(dim, AnyDim) for output in self.signature.outputs for dim in output.dims)


E = TypeVar("E", bound=Entry)


def described(operator: LibraryOperator) -> dict[str, Any]:
    """Read what a kernel library says of an operator: the fields of `Entry`."""
    where = f"{operator.domain}::{operator.name}"
    signature = Signature.parse(operator.signature, where=operator.key)
    return {
        "key": operator.key,
        "where": where,
        "signature": signature,
        "types": parse_types(operator.types, signature, where=where),
        "gradient": GradientProgram.parse(operator.gradient, where=where) if operator.gradient else None,
        "flags": operator.flags,
        "library": operator,
    }


def function_of_entry(entry: E, call: Callable[[E, Sequence[Any], Mapping[str, Any]], Any]) -> Callable[..., Any]:
    """Return an operator as a function of a tensor per parameter, that has its name, signature and words.

    Args:
        entry: the operator in a framework.
        call: computes it on arranged tensors.
    """

    def function(*tensors: Any, **attributes: Any) -> Any:  # noqa: ANN401
        return call(entry, arranged(entry.where, entry.signature, tensors), attributes)

    return function_of(entry.key, entry.signature, entry.types, function)


def require_operator(given: object, where: str) -> None:
    """Refuse what is no operator, such as its name or a plain function.

    Raises:
        ArgumentError: it is none.
    """
    if not isinstance(given, Operator):
        hint = 'opforge.load("PACKAGE:Name")[0] returns a declared one' if isinstance(given, str) else None
        raise ArgumentError("this is no operator", where=where, expected="an Operator", got=repr(given), hint=hint)


class Entries(Generic[E]):
    """What is registered with one framework; gradient operators included."""

    def __init__(
        self,
        host: str,
        package: str,
        make: Callable[[LibraryOperator], E],
        complete: Callable[[E], None] | None = None,
        serve: Callable[[E, LibraryOperator], None] | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            host: the framework, for messages.
            package: where its ``register`` is, for messages.
            make: registers an operator natively and returns its entry.
            complete: registers what needs the entry, such as gradients.
            serve: tells the native adapter of another library's row of a registered operator, for its kernels.
        """
        self._host, self._package, self._make, self._complete, self._serve = host, package, make, complete, serve
        self._lock = threading.RLock()
        self._entries: dict[str, E] = {}
        self._rows: dict[str, set[int]] = {}  # addresses of the rows that the adapter was told of, by key
        self._folders: dict[str, Path] = {}  # of the library that an operator came from

    def register(self, operators: Iterable[LibraryOperator]) -> list[E]:
        """Register operators of a kernel library. What is registered already stays, and takes in new kernels.

        Raises:
            ArgumentError: another operator of the same name and version is registered; the message names both.
        """
        with self._lock:
            return [self._register(operator) for operator in operators]

    def register_library(self, library: LoadedLibrary) -> list[E]:
        """Register every operator of a kernel library."""
        entries = self.register(library.operators.values())
        if library.path is not None:
            for entry in entries:
                self._folders.setdefault(entry.key, library.path.parent)
        return entries

    def _register(self, operator: LibraryOperator) -> E:
        known = self._entries.get(operator.key)
        if known is None:
            entry = self._entries[operator.key] = self._make(operator)
            try:
                if self._complete is not None:
                    self._complete(entry)
            except BaseException:
                del self._entries[operator.key]  # another try is another registration, not a known operator
                raise
            self._rows[operator.key] = {operator.address}
            return entry
        if known.library.schema_hash != operator.schema_hash:
            raise ArgumentError(
                f"another operator of this name is registered with {self._host}",
                where=operator.key,
                expected=f"{known.signature} ({known.library.schema_hash[:12]})",
                got=f"{operator.signature} ({operator.schema_hash[:12]})",
                hint="raise since= for a changed operator, or restart the process (the notebook's kernel)",
            )
        if self._serve is not None and operator.address not in self._rows[operator.key]:
            self._serve(known, operator)
            self._rows[operator.key].add(operator.address)
        return known

    def find(self, key: str) -> E | None:
        """Return the registered operator ``domain::Name:version``, or None."""
        return self._entries.get(key)

    def find_declared(self, operator: Operator) -> E | None:
        """Return the entry of this very declaration, or None."""
        entry = self._entries.get(operator.key)
        return entry if entry is not None and entry.library.schema_hash == operator.schema_hash else None

    def of_operator(self, operator: Operator) -> E:
        """Return the entry of an operator, building and registering its library where that has not happened yet.

        Raises:
            ArgumentError: another declaration of the name is registered (the message names both), or this is none.
        """
        require_operator(operator, self._package)
        entry = self.find_declared(operator)
        if entry is None:
            self.register_library(library_for([operator]))
            entry = self._entries[operator.key]
        return entry

    def load_device(self, key: str, device: Device) -> None:
        """Find or build the library with a registered operator's kernels for a device, and register it too.

        Of the library's other operators only those that are registered get its kernels: one that has not been used yet
        would else be known without kernels for the CPU.

        Raises:
            ToolchainError: there is none, and none can be built here; the message names what is missing.
            BuildError: the compiler refuses a source.
        """
        row = self.of_key(key).library
        operator = declaring(row.key, row.schema_hash)
        if operator is not None:
            library = device_library(operator, device)
        else:
            library = device_library_of_row(row, self._folders.get(key), device)
        self.serve_known(library)

    def load_cpu(self, key: str) -> None:
        """Find or build the library with a registered operator's kernels for the CPU, and register it too.

        That is for an operator that became known by a library for another device, which lay first where libraries are
        looked for.

        Raises:
            ToolchainError: there is none, and none can be built here.
            BuildError: the compiler refuses a source.
        """
        row = self.of_key(key).library
        operator = declaring(row.key, row.schema_hash)
        if operator is not None:
            library: LoadedLibrary | None = library_for([operator])
        else:
            library = find_row(row.key, row.schema_hash, self._folders.get(key), "cpu")
        if library is None:
            raise ToolchainError(
                "the operator's kernels for the CPU are not built",
                where=key,
                expected="a library built ahead, or what declares the operator",
                got="nothing declares it here, and it became known by a library for another device",
                hint="opforge build PACKAGE --out FOLDER, with FOLDER in OPFORGE_LIBRARY_PATH",
            )
        self.serve_known(library)

    def serve_known(self, library: LoadedLibrary) -> None:
        """Take the kernels of a library for those of its operators that are registered already."""
        known = {one.key: one.library.schema_hash for one in list(self._entries.values())}
        self.register(one for one in library.operators.values() if known.get(one.key) == one.schema_hash)

    def of_key(self, key: str) -> E:
        """Return the registered operator ``domain::Name:version``, which gradient programs name.

        Raises:
            ArgumentError: it is not registered.
        """
        entry = self._entries.get(key)
        if entry is None:
            raise ArgumentError(
                f"the operator is not registered with {self._host}",
                where=key,
                hint=f"call {self._package}.register",
            )
        return entry

    def all(self) -> list[E]:
        """Return what is registered."""
        return list(self._entries.values())
