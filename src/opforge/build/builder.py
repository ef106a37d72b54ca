"""Build one planned library: emit, look in the cache, compile, link, publish."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opforge.build import abi
from opforge.build.cache import Made, open_cache
from opforge.build.compile import compile_units, link
from opforge.build.flags import Profile, compile_flags, default_profile, link_flags, sanitize_flags, shown_flags
from opforge.build.plan import LibraryPlan
from opforge.build.toolchain import Compiler, find_compiler
from opforge.codegen import Unit, kernel_units, table_unit
from opforge.codegen.units import cpp_string

__all__ = ["Recipe", "build", "build_library", "content_hash", "current_content"]


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
    flags = compile_flags(compiler, profile) + sanitize_flags(compiler, sanitize)
    units = [*kernel_units(plan.operators), *extra]
    table = table_unit(plan.operators, plan.id, plan.version)
    text = f"{compiler}; {profile}; {shown_flags(flags)}"
    return build(plan, Recipe(compiler, flags, units, compiler, flags, table, link_flags(compiler, sanitize), text))


@dataclass(frozen=True)
class Recipe:
    """How a library is made.

    Attributes:
        compiler: of the kernels.
        flags: of the kernels.
        units: that hold the kernels.
        host: compiler of the table, and the linker.
        host_flags: of the table.
        table: the unit that is exported.
        linked: flags of the link.
        text: what the library says of its build, for people.
        keeps_words: whether what the compiler says is kept beside the library.
        effort: flags of the kernels that say how to go about it, which no result depends on.
        ignored: folders whose files no result depends on but through the compiler's identity.
    """

    compiler: Compiler
    flags: tuple[str, ...]
    units: Sequence[Unit]
    host: Compiler
    host_flags: tuple[str, ...]
    table: Unit
    linked: tuple[str, ...]
    text: str
    keeps_words: bool = False
    effort: tuple[str, ...] = ()
    ignored: tuple[Path, ...] = ()

    def depends_on(self, file: Path) -> bool:
        """Return whether a change of a file that a compiler read makes another library."""
        return not any(folder in file.parents for folder in self.ignored)


def build(plan: LibraryPlan, recipe: Recipe) -> Path:
    """Return the shared object that a recipe makes of a plan, from the cache where it is there."""
    where, units, table = plan.operators[0].key, list(recipe.units), recipe.table

    def make(folder: Path) -> Made:
        objects, files, words = compile_units(recipe.compiler, units, recipe.effort + recipe.flags, folder, where)
        files = [file for file in files if recipe.depends_on(file)]
        content = content_hash(plan, units, files)
        facts = {"OPFORGE_CONTENT_HASH": content, "OPFORGE_BUILD": recipe.text}
        defined = tuple(f"-D{name}={cpp_string(value)}" for name, value in facts.items())
        final = replace(table, flags=(*table.flags, *defined))
        more, more_files, _ = compile_units(recipe.host, [final], recipe.host_flags, folder, where)
        library = folder / f"{plan.name}.so"
        link(recipe.host, [*objects, *more], library, recipe.linked, where)
        return Made(library, [*files, *more_files], content, files, words if recipe.keeps_words else "")

    return open_cache().built(plan.name, _primary_key(recipe), make)


def current_content(plan: LibraryPlan, library: Path) -> str | None:
    """Return the content hash that a library from the cache would have if it were built now.

    None where the cache holds no record of the files that it was made of, or one of them is gone.
    """
    try:
        record = json.loads(library.with_suffix(".json").read_text(encoding="utf-8"))
        files = [Path(name) for name in record["sources"]]
        return content_hash(plan, kernel_units(plan.operators), files) if files else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _primary_key(recipe: Recipe) -> str:
    compilers = dict.fromkeys([recipe.compiler.identity, recipe.host.identity])
    flags = recipe.flags if recipe.flags == recipe.host_flags else recipe.flags + recipe.host_flags
    parts = [f"abi {abi.ABI}", *compilers, *flags, *recipe.linked]
    for unit in [*recipe.units, recipe.table]:
        parts += [unit.name, unit.text, *unit.flags]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def content_hash(plan: LibraryPlan, units: Sequence[Unit], files: Sequence[Path]) -> str:
    """Hash what the library computes: declarations, generated formulas, and the sources read, wherever they lie."""
    digest = hashlib.sha256()
    for operator in plan.operators:
        digest.update("\0".join([operator.key, operator.schema_hash, operator.gradient or ""]).encode())
    formulas = [unit.text for unit in units if "_dispatch." not in unit.name]
    for content in [*formulas, *sorted(path.read_text("utf-8", "replace") for path in files)]:
        digest.update(hashlib.sha256(content.encode("utf-8", "replace")).digest())
    return digest.hexdigest()
