"""Build one planned library: emit, look in the cache, compile, link, publish."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from pathlib import Path

from opforge.build import abi
from opforge.build.cache import open_cache
from opforge.build.compile import compile_units, link
from opforge.build.flags import Profile, compile_flags, default_profile, link_flags
from opforge.build.plan import LibraryPlan
from opforge.build.toolchain import Compiler, find_compiler
from opforge.codegen import Unit, kernel_units, table_unit
from opforge.codegen.units import cpp_string

__all__ = ["build_library"]


def build_library(plan: LibraryPlan, *, profile: Profile | None = None) -> Path:
    """Return the path of the plan's shared object in the cache, compiled now if it is not there.

    Raises:
        ToolchainError: no compiler works.
        BuildError: the compiler or linker refuses.
    """
    compiler = find_compiler()
    profile = profile or default_profile()
    units = kernel_units(plan.operators)
    table = table_unit(plan.operators, plan.id, plan.version)
    flags = compile_flags(compiler, profile)
    key = _primary_key(compiler, [*units, table], flags)
    cache = open_cache()
    found = cache.lookup(plan.name, key)
    if found:
        return found
    with cache.lock(plan.name, key):
        found = cache.lookup(plan.name, key)
        if found:
            return found
        with cache.workspace(plan.name, key) as folder:
            started = time.time_ns()
            where = plan.operators[0].key
            objects, files, _ = compile_units(compiler, units, flags, folder, where)
            content = _content_hash(plan, units, files)
            text = f"{compiler}; {profile}; {' '.join(f for f in flags if not f.startswith('-I'))}"
            final = replace(
                table, flags=(f"-DOPFORGE_CONTENT_HASH={cpp_string(content)}", f"-DOPFORGE_BUILD={cpp_string(text)}")
            )
            more, more_files, _ = compile_units(compiler, [final], flags, folder, where)
            built = folder / f"{plan.name}.so"
            link(compiler, [*objects, *more], built, link_flags(compiler), where)
            return cache.publish(plan.name, key, built, [*files, *more_files], content, started)


def _primary_key(compiler: Compiler, units: list[Unit], flags: tuple[str, ...]) -> str:
    parts = [f"abi {abi.ABI}", compiler.identity, *flags, *link_flags(compiler)]
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
