"""Ahead of time: an operator package to one library with its manifest in a folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from opforge._files import whole_file
from opforge.build.ahead import source_hashes
from opforge.build.builder import build_library
from opforge.build.cache import compiler_words
from opforge.build.cuda.builder import build_cuda_library, cuda_plan
from opforge.build.flags import Profile
from opforge.build.library import load_library
from opforge.build.manifest import manifest
from opforge.build.plan import plan_library
from opforge.errors import ArgumentError
from opforge.schema import load
from opforge.schema.operator import Operator

__all__ = ["build_libraries", "build_operators", "build_package", "default_folder"]


def default_folder(package_or_path: str | os.PathLike[str]) -> Path:
    """Return ``_lib`` in the folder that holds all of the package's declarations: where loading looks first."""
    operators = load(os.fspath(package_or_path))
    folders = {Path(operator.declared_at.rpartition(":")[0]).parent for operator in operators}
    return Path(os.path.commonpath(folders)) / "_lib"


def build_package(
    package_or_path: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    profile: Profile | None = None,
    device: str = "cpu",
    architectures: Sequence[str] | None = None,
) -> Path:
    """Build every operator of a package into ``out_dir/<id>.so`` with ``<id>.manifest.json``; return the former.

    Where its operators are of several libraries, each is built, and the first one returned; see `build_libraries`.

    Args:
        package_or_path: the package.
        out_dir: the folder.
        profile: how the library rounds; None = the default.
        device: "cpu", or "cuda" for the kernels for GPUs, which go to ``<id>_cuda.so``.
        architectures: of GPUs, "sm_80" and the like; None = those of this machine's, else sm_80 and sm_90.

    Raises:
        ArgumentError: the package declares no operator.
        ToolchainError: no compiler works.
        BuildError: the compiler refuses a source.
    """
    operators = load(os.fspath(package_or_path))
    if not operators:
        raise ArgumentError("the package declares no operator", where=str(package_or_path))
    return build_libraries(operators, out_dir, profile=profile, device=device, architectures=architectures)[0]


def build_libraries(
    operators: Sequence[Operator],
    out_dir: str | os.PathLike[str],
    *,
    profile: Profile | None = None,
    device: str = "cpu",
    architectures: Sequence[str] | None = None,
) -> list[Path]:
    """Build `operators` into the libraries that hold them, one for each domain, as `build_operators`.

    A ``.bin`` names the library that it needs by the operator's domain, and is looked for under that name.
    """
    groups: dict[str, list[Operator]] = {}
    for operator in operators:
        groups.setdefault(operator.package or operator.host_namespace, []).append(operator)
    return [
        build_operators(group, out_dir, profile=profile, device=device, architectures=architectures)
        for group in groups.values()
    ]


def build_operators(
    operators: Sequence[Operator],
    out_dir: str | os.PathLike[str],
    *,
    profile: Profile | None = None,
    device: str = "cpu",
    architectures: Sequence[str] | None = None,
) -> Path:
    """Build `operators` into one library in `out_dir`, as `build_package`; both files appear whole or not at all."""
    first = operators[0]
    plan = plan_library(operators, name=(first.package or first.host_namespace).replace(".", "_"))
    if device == "cuda":
        plan = cuda_plan(plan)
        built = build_cuda_library(plan, architectures=architectures, profile=profile)
    else:
        built = build_library(plan, profile=profile)
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{plan.name}.so"
    with whole_file(target) as temporary:
        shutil.copyfile(built, temporary)
    facts = manifest(load_library(target), source_hashes(plan))
    if device == "cuda":
        facts["compiler_words"] = compiler_words(built)
    text = json.dumps(facts, indent=2) + "\n"
    with whole_file(folder / f"{plan.name}.manifest.json") as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target
