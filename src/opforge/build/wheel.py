"""An operator package's wheel: `py3-none-<platform>`, with the compiled kernel library and its manifest inside."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from opforge._files import whole_file
from opforge.build.package import build_libraries
from opforge.errors import ArgumentError, BuildError
from opforge.schema import Operator, load

__all__ = ["build_wheel"]

_SETUPTOOLS = 77  # as in the pyproject.toml that `opforge new --package` writes
_NOT_COPIED = ("build", "dist", "_lib", "*.egg-info", "__pycache__", ".git", ".venv")


def build_wheel(project: str | os.PathLike[str], out_dir: str | os.PathLike[str]) -> Path:
    """Build the wheel of an operator package.

    The library inside runs on every processor of this platform that has x86-64-v3 (AVX2, FMA), respectively the
    platform's baseline; on an older one its loading is refused, and formulas and sources are compiled there instead.

    Args:
        project: folder with a pyproject.toml whose entry points (group ``opforge.operators``) name the package.
        out_dir: where the wheel goes; it appears whole or not at all.

    Raises:
        ArgumentError: the folder is no such project.
        BuildError: the kernels do not compile, or pip cannot build the wheel.
    """
    root = Path(project).resolve()
    package = _package_folder(root)
    operators = _operators(root)
    with tempfile.TemporaryDirectory(prefix="opforge-wheel-") as scratch:
        # The project stays as it is: library and wheel are made in a copy.
        copy = Path(scratch) / root.name
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        build_libraries(operators, copy / package / "_lib", profile="portable")
        tagged = _tag(_pip_wheel(copy, Path(scratch) / "wheel"), package.name)
        target = Path(out_dir)
        target.mkdir(parents=True, exist_ok=True)
        final = target / tagged.name
        with whole_file(final) as temporary:
            shutil.copyfile(tagged, temporary)
    return final


def _package_folder(root: Path) -> Path:
    file = root / "pyproject.toml"
    if not file.is_file():
        raise ArgumentError(
            "a wheel needs a project",
            where=str(root),
            expected="a folder with a pyproject.toml",
            hint="opforge new --package writes one",
        )
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise ArgumentError("not a TOML file", where=str(file), got=str(problem)) from None
    entries = content.get("project", {}).get("entry-points", {}).get("opforge.operators", {})
    for module in entries.values():
        relative = Path(*module.split(":")[0].split("."))
        for folder in (Path("src") / relative, relative):
            if (root / folder / "__init__.py").is_file():
                return folder
    raise ArgumentError(
        "the project names no operator package",
        where=str(file),
        expected='[project.entry-points."opforge.operators"] with a package that lies in the project',
        got=entries or "no such table",
    )


def _operators(root: Path) -> list[Operator]:
    """Load the project's operators, and make sure that they are the project's."""
    operators = load(root)
    for operator in operators:
        place = Path(operator.declared_at.rpartition(":")[0])
        if not place.resolve().is_relative_to(root):
            raise ArgumentError(
                "another installation of the package was imported before",
                where=operator.qualified_name,
                expected=f"a declaration in {root}",
                got=str(place),
                hint="build the wheel in a process of its own: opforge build --wheel",
            )
    return operators


def _pip_wheel(project: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(project)]
    if _has_backend():
        command.append("--no-build-isolation")  # no download when the backend is here already
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        here = "--no-build-isolation" in command
        raise BuildError(
            "pip cannot build the wheel",
            where=str(project),
            got=f"\n{done.stdout}{done.stderr}".rstrip(),
            hint=None if here else f"without network, first pip install 'setuptools>={_SETUPTOOLS}'",
        )
    return next(out.glob("*.whl"))


def _has_backend() -> bool:
    """Whether the setuptools that the project asks for is here; older ones need the package wheel beside them."""
    try:
        return int(version("setuptools").partition(".")[0]) >= _SETUPTOOLS
    except (PackageNotFoundError, ValueError):
        return False


def _tag(wheel: Path, package: str) -> Path:
    """Give the wheel its platform: it holds native code that needs no particular Python."""
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    distribution, number = wheel.name.split("-")[:2]
    tagged = wheel.with_name(f"{distribution}-{number}-py3-none-{platform}.whl")
    info = f"{distribution}-{number}.dist-info"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(tagged, "w", zipfile.ZIP_DEFLATED) as target:
        names = source.namelist()
        if not any(f"{package}/_lib/" in name and name.endswith(".so") for name in names):
            raise BuildError(
                "the wheel lacks the kernel library",
                where=wheel.name,
                expected=f"{package}/_lib/*.so",
                got=", ".join(names),
                hint='package data in pyproject.toml must include "_lib/*" (and "*.cc", "*.h")',
            )
        records = []
        for item in source.infolist():
            if item.filename == f"{info}/RECORD":
                continue
            data = source.read(item)
            if item.filename == f"{info}/WHEEL":
                text = re.sub(r"(?m)^Root-Is-Purelib:.*$", "Root-Is-Purelib: false", data.decode())
                data = re.sub(r"(?m)^Tag:.*$", f"Tag: py3-none-{platform}", text).encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{item.filename},sha256={digest},{len(data)}")
            target.writestr(item, data)
        records.append(f"{info}/RECORD,,")
        target.writestr(f"{info}/RECORD", "\n".join(records) + "\n")
    return tagged
