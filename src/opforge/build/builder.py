"""Build one planned library: emit, look in the cache, compile, link, publish."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from opforge.build import abi
from opforge.build.cache import Made, open_cache
from opforge.build.compile import compile_units, link
from opforge.build.flags import Profile, compile_flags, default_profile, link_flags, sanitize_flags
from opforge.build.plan import LibraryPlan
from opforge.build.toolchain import Compiler, find_compiler
from opforge.codegen import Unit, kernel_units, table_unit
from opforge.codegen.units import cpp_string

__all__ = ["build_library", "current_content"]


def build_library(
    plan: LibraryPlan,
    *,
    profile: Profile | None = None,
    compiler: Compiler | None = None,
    sanitize: str = "",
    extra: Sequence[Unit] = (),
) -> Path:
    """Return the path of the plan's shared object in the cache, compiled now if it is not there.

    Args:
        plan: what it holds.
        profile: how it rounds; None = the default.
        compiler: None = the one that is found.
        sanitize: what to instrument it with, as of ``-fsanitize=``; it then keeps its names and lines.
        extra: units beside those of the operators.

    Raises:
        ToolchainError: no compiler works.
        BuildError: the compiler or linker refuses.
    """
    compiler = compiler or find_compiler()
    profile = profile or default_profile()
    units = [*kernel_units(plan.operators), *extra]
    table = table_unit(plan.operators, plan.id, plan.version)
    flags = compile_flags(compiler, profile) + sanitize_flags(compiler, sanitize)
    linked = link_flags(compiler, sanitize)
    key = _primary_key(compiler, [*units, table], flags, linked)
    where = plan.operators[0].key

    def make(folder: Path) -> Made:
        objects, files, _ = compile_units(compiler, units, flags, folder, where)
        content = _content_hash(plan, units, files)
        text = f"{compiler}; {profile}; {' '.join(f for f in flags if not f.startswith('-I'))}"
        final = replace(
            table, flags=(f"-DOPFORGE_CONTENT_HASH={cpp_string(content)}", f"-DOPFORGE_BUILD={cpp_string(text)}")
        )
        more, more_files, _ = compile_units(compiler, [final], flags, folder, where)
        library = folder / f"{plan.name}.so"
        link(compiler, [*objects, *more], library, linked, where)
        return Made(library, [*files, *more_files], content, files)

    return open_cache().built(plan.name, key, make)


def current_content(plan: LibraryPlan, library: Path) -> str | None:
    """Return the content hash that a library from the cache would have if it were built now.

    None where the cache holds no record of the files that it was made of, or one of them is gone.
    """
    try:
        record = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
        files = [Path(name) for name in record["sources"]]
        return _content_hash(plan, kernel_units(plan.operators), files) if files else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _primary_key(compiler: Compiler, units: list[Unit], flags: tuple[str, ...], linked: tuple[str, ...]) -> str:
    parts = [f"abi {abi.ABI}", compiler.identity, *flags, *linked]
    for unit in units:
        parts += [unit.name, unit.text, *unit.flags]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _content_hash(plan: LibraryPlan, units: list[Unit], files: list[Path]) -> str:
    """Hash what the library computes: declarations, generated formulas, and the sources read, wherever they lie."""
    digest = hashlib.sha256()
    for operator in plan.operators:
        digest.update("\0".join([operator.key, operator.schema_hash, operator.gradient or ""]).encode())
    formulas = [unit.text for unit in units if not unit.name.endswith("_dispatch.cc")]
    for content in [*formulas, *sorted(path.read_text("utf-8", "replace") for path in files)]:
        digest.update(hashlib.sha256(content.encode("utf-8", "replace")).digest())
    return digest.hexdigest()
