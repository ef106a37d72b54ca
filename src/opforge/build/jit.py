"""Libraries on demand: what a host calls before an operator's first run.

``OPFORGE_JIT`` chooses: ``auto`` (default) compiles where a compiler exists and interprets formulas elsewhere;
``off`` never compiles; ``require`` always does. A library built ahead is taken first in every mode.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Literal

from opforge.build.ahead import find_built
from opforge.build.builder import build_library
from opforge.build.interpreter import interpreter_library
from opforge.build.library import LoadedLibrary, load_library
from opforge.build.plan import LibraryPlan, plan_library
from opforge.build.toolchain import INSTALL_HINT, find_compiler
from opforge.errors import ArgumentError, BuildError, InternalError, MissingOperatorError, ToolchainError
from opforge.schema.operator import Operator

__all__ = ["jit_mode", "library_for", "notice"]

_NOTICE_AFTER_SECONDS = 2.0

_lock = threading.RLock()
_libraries: dict[tuple[object, ...], LoadedLibrary] = {}
# By mode and operator object: a gradient operator is in the library of its forward operator. The plans keep the
# operators alive, so that no other object takes their identity.
_homes: dict[tuple[str, int], LoadedLibrary] = {}
_plans: list[LibraryPlan] = []


def jit_mode() -> Literal["auto", "off", "require"]:
    """Return the mode that ``OPFORGE_JIT`` names."""
    value = os.environ.get("OPFORGE_JIT", "auto")
    for mode in ("auto", "off", "require"):
        if value == mode:
            return mode
    raise ArgumentError("unknown mode", where="OPFORGE_JIT", expected="auto, off or require", got=value)


def library_for(operators: Sequence[Operator]) -> LoadedLibrary:
    """Return a loaded library that holds `operators`, their gradient operators and what their gradients call.

    Pass one operator to wait for that one only. The result is kept for the process; its table is never freed.

    Raises:
        ToolchainError: a kernel operator (or, under ``OPFORGE_JIT=require``, any) and no compiler.
        BuildError: the compiler refuses an author's source.
    """
    mode = jit_mode()
    memo = (mode, *((o.key, o.schema_hash, id(o)) for o in operators))
    found = _libraries.get(memo)
    if found is not None:
        return found
    with _lock:
        if memo not in _libraries:
            homes = {id(home): home for home in (_homes.get((mode, id(o))) for o in operators)}
            (home,) = homes.values() if len(homes) == 1 else (None,)
            _libraries[memo] = home or _build(plan_library(operators), mode)
        return _libraries[memo]


def _build(plan: LibraryPlan, mode: str) -> LoadedLibrary:
    library = _obtain(plan, mode)
    _check(plan, library)
    _plans.append(plan)
    for operator in plan.operators:
        _homes.setdefault((mode, id(operator)), library)
    return library


def _obtain(plan: LibraryPlan, mode: str) -> LoadedLibrary:
    built = None if mode == "require" else find_built(plan)
    if built is not None:
        return built
    if mode == "off":
        return _without_compiler(plan, "OPFORGE_JIT=off forbids compiling")
    try:
        find_compiler()
    except ToolchainError as error:
        if mode == "require":
            raise
        return _without_compiler(plan, "missing compiler", error)
    try:
        with notice(plan.name):
            return load_library(build_library(plan))
    except BuildError as error:
        if mode == "require" or plan.kernel_operators:
            raise
        try:
            library = interpreter_library(plan)
        except ToolchainError:
            raise error from None
        text = f"formulas of {plan.name} are interpreted, the compiler failed: {error}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
        return library


def _without_compiler(plan: LibraryPlan, why: str, error: ToolchainError | None = None) -> LoadedLibrary:
    if not plan.kernel_operators:
        return interpreter_library(plan)
    raise ToolchainError(
        f"{why}: a kernel operator runs compiled code only",
        where=plan.kernel_operators[0].key,
        expected="a C++17 compiler, or a library built ahead",
        got=error.got if error else "no built library holds the operator",
        hint=f"{INSTALL_HINT}; or build it elsewhere with `opforge build` and name its folder in OPFORGE_LIBRARY_PATH",
    ) from None


def _check(plan: LibraryPlan, library: LoadedLibrary) -> None:
    for operator in plan.operators:
        row = library.operators.get(operator.key)
        if row is None:
            held = sorted(library.operators)
            raise MissingOperatorError("operator is not in its library", where=operator.key, got=held)
        if row.schema_hash != operator.schema_hash:
            raise InternalError(
                "the library holds another declaration of the operator",
                where=f"{operator.key} in {library.path}", expected=operator.schema_hash, got=row.schema_hash,
            )  # fmt: skip


@contextlib.contextmanager
def notice(name: str) -> Iterator[None]:
    """Say that a build is going on once it takes longer than a user expects of a call."""

    def tell() -> None:
        print(f"opforge: compiling {name} (once; `opforge build` does it ahead)", file=sys.stderr)

    timer = threading.Timer(_NOTICE_AFTER_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
