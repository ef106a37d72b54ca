"""Compiler flags: rounding is explicit everywhere, so contraction is off and there is no fast-math."""

from __future__ import annotations

import os
from typing import Literal, cast, get_args

from opforge._paths import include_dir
from opforge.build.toolchain import Compiler
from opforge.errors import ArgumentError

__all__ = ["Profile", "compile_flags", "default_profile", "link_flags", "sanitize_flags", "shown_flags"]

Profile = Literal["fast", "strict", "portable"]
"""fast: this machine, fused multiply-add. strict: multiply and add apart, equal bits on every target. portable: fast
for any x86-64-v3 machine (elsewhere the target's baseline), for libraries that travel."""


def default_profile() -> Profile:
    """Return the profile named by ``OPFORGE_PROFILE``, else "fast"."""
    value = os.environ.get("OPFORGE_PROFILE", "fast")
    for profile in get_args(Profile):
        if value == profile:
            return cast(Profile, profile)
    expected = ", ".join(get_args(Profile))
    raise ArgumentError("unknown profile", where="OPFORGE_PROFILE", expected=expected, got=value)


def compile_flags(compiler: Compiler, profile: Profile) -> tuple[str, ...]:
    """Return the flags of one compile unit. The strict profile keeps multiply and add apart on every target."""
    flags = ["-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
    # -fno-trapping-math and -fno-math-errno change no value; they let comparisons and calls become vector code.
    flags += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-plt", "-DNDEBUG"]
    flags += ["-Wall", "-Wextra", "-fdiagnostics-color=never"]
    # One mistake in a template shows once per choice of dtypes; the first few say it all.
    flags.append("-fmax-errors=4" if compiler.kind == "gcc" else "-ferror-limit=4")
    if compiler.kind == "gcc":
        flags.append("-Wno-psabi")  # vector types never cross the library's boundary
        flags.append("-fsplit-paths")  # of -O3, what formula units (-O2) gain from: 2x in half types
    if profile == "portable":
        if compiler.target.startswith("x86_64"):
            flags.append("-march=x86-64-v3")
    elif compiler.native:
        flags.append("-march=native")
        if "__AVX512F__" in compiler.macros:
            flags.append("-mprefer-vector-width=512")
    if profile == "strict":
        flags.append("-DOPFORGE_PROFILE_STRICT=1")
    flags.append(f"-I{include_dir()}")
    return tuple(flags)


def sanitize_flags(compiler: Compiler, sanitize: str) -> tuple[str, ...]:
    """Return the flags that instrument a library, which come last; none where ``sanitize`` is empty."""
    if not sanitize:
        return ()
    shared = ("-shared-libsan",) if compiler.kind == "clang" else ()
    return (f"-fsanitize={sanitize}", *shared, "-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")


def link_flags(compiler: Compiler, sanitize: str = "") -> tuple[str, ...]:
    """Return the flags of the link step: a library that needs nothing but libc, libm and, if used, libstdc++.

    It shows its table alone (``opforge/exports.map``), unless it is instrumented.
    """
    if sanitize:  # its runtime is loaded first, and reports name lines
        return ("-shared", "-fPIC", "-pthread", *sanitize_flags(compiler, sanitize))
    flags = ["-shared", "-fPIC", "-s"]
    if "darwin" not in compiler.target and "apple" not in compiler.target:
        flags += ["-Wl,--as-needed", "-Wl,-z,defs", "-Wl,--gc-sections"]
        flags.append(f"-Wl,--version-script={include_dir() / 'opforge' / 'exports.map'}")
    return tuple(flags)


def shown_flags(flags: tuple[str, ...]) -> str:
    """Return what a library says of its flags: without the folders of this machine."""
    return " ".join(flag for flag in flags if not flag.startswith(("-I", "-L")))
