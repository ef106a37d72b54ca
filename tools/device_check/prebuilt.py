"""``make device-build``: the kernel libraries of all operators, for machines with a GPU and nothing to build with.

Into a folder go, per operator, the library for the CPU (portable) and the one for CUDA (fatbin and PTX), each with its
manifest, so that ``OPFORGE_LIBRARY_PATH`` finds them, and the Python packages that the check needs. ``--emulated``
makes the CUDA libraries of the emulator instead, and the fake driver that goes with them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from opforge._files import whole_file
from opforge.build import load_library, manifest
from opforge.build.ahead import source_hashes
from opforge.build.builder import build_library
from opforge.build.plan import LibraryPlan, plan_library
from opforge.build.toolchain import find_compiler
from opforge.cli._targets import load_operators
from opforge.cuda import emulate_operators
from opforge.errors import OpforgeError
from tools.device_check.launched import LAUNCHED, build_launched
from tools.device_check.packages import carry

__all__ = ["DRIVER", "build", "build_fake_driver"]

ARCHITECTURES: Final = ("sm_80", "sm_90", "compute_90")
PACKAGES: Final = ("opforge.ops", "tests/device/formulas.py", "examples/tiled_matmul")
DRIVER: Final = "libfakecuda.so"
_OTHER: Final = "sm_120"
"""One library is built for this architecture, to see that older devices refuse it; newer ones would run its PTX."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and print one line per library; 1 where one could not be built."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/device"))
    parser.add_argument("--package", action="append", help=f"or PACKAGE:Operator; default: {' '.join(PACKAGES)}")
    parser.add_argument("--architecture", action="append", help=f"default: {' '.join(ARCHITECTURES)}")
    parser.add_argument("--emulated", action="store_true", help="kernels that the CPU runs")
    given = parser.parse_args(arguments)
    made = build(
        given.out,
        packages=given.package or PACKAGES,
        architectures=tuple(given.architecture or ARCHITECTURES),
        emulated=given.emulated,
    )
    for row in made["libraries"]:
        print(f"{row['name']:40} {row['bytes'] / 1e6:6.2f} MB  {row['seconds']:5.1f} s")
    for name, reason in made["left_out"].items():
        print(f"left out {name}: {reason}")
    return 0 if made["libraries"] and not made["left_out"] else 1


def build(
    out: Path,
    *,
    packages: Sequence[str] = PACKAGES,
    architectures: Sequence[str] = ARCHITECTURES,
    emulated: bool = False,
) -> dict[str, Any]:
    """Build all libraries into a folder and return what was made, which is also written to ``prebuilt.json`` there.

    Those of an earlier build are removed first: one that cannot be built now is missing, not old.
    """
    other = out / "other_architecture"
    out.mkdir(parents=True, exist_ok=True)
    (out / "prebuilt.json").unlink(missing_ok=True)
    for folder in (out, other):
        _empty(folder)
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for operator in (one for package in packages for one in load_operators(package)):
        plan = plan_library([operator])
        for device, make in _makers(plan, architectures, emulated).items():
            name = plan.name if device == "cpu" else f"{plan.name}_{device}"
            started = time.perf_counter()
            try:
                path = _place(make(), plan, out, name)
            except OpforgeError as error:
                left_out[name] = str(error)
                continue
            rows.append({"name": name, "bytes": path.stat().st_size, "seconds": time.perf_counter() - started})
    shutil.rmtree(out / LAUNCHED, ignore_errors=True)
    try:
        build_launched(out / LAUNCHED, architectures, emulated=emulated)
    except OpforgeError as error:
        left_out[LAUNCHED] = str(error)
    if emulated:
        build_fake_driver(out)
    else:
        other.mkdir(exist_ok=True)
        plan = plan_library(load_operators("opforge.ops:CustomGELU"))
        try:
            _place(_build_cuda(plan, (_OTHER,)), plan, other, f"{plan.name}_cuda")
        except OpforgeError as error:
            left_out[_OTHER] = str(error)
    content = {
        "emulated": emulated,
        "packages": carry(out),
        "architectures": list(architectures) if not emulated else [],
        "libraries": rows,
        "left_out": left_out,
    }
    (out / "prebuilt.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    return content


def _makers(plan: LibraryPlan, architectures: Sequence[str], emulated: bool) -> dict[str, Callable[[], Path]]:
    def cuda() -> Path:
        if emulated:
            return emulate_operators(plan.operators).path
        return _build_cuda(plan, architectures)

    return {"cpu": partial(build_library, plan, profile="portable"), "cuda": cuda}


def _build_cuda(plan: LibraryPlan, architectures: Sequence[str]) -> Path:
    built: Path = import_module("opforge.build.cuda").build_cuda_library(plan, architectures=architectures)
    return built


def _place(built: Path, plan: LibraryPlan, out: Path, name: str) -> Path:
    target = out / f"{name}.so"
    shutil.copyfile(built, target.with_suffix(".part"))
    target.with_suffix(".part").replace(target)
    text = json.dumps(manifest(load_library(target), source_hashes(plan)), indent=1)
    (out / f"{name}.manifest.json").write_text(text, encoding="utf-8")
    return target


def _empty(folder: Path) -> None:
    for described in folder.glob("*.manifest.json"):
        described.with_name(described.name.replace(".manifest.json", ".so")).unlink(missing_ok=True)
        described.unlink()


def build_fake_driver(out: Path) -> Path:
    """Compile the fake driver."""
    source, target = Path(__file__).with_name("fake_driver.cpp"), out / DRIVER
    if not target.is_file() or target.stat().st_mtime < source.stat().st_mtime:
        with whole_file(target) as temporary:  # tests that run at once make it too
            flags = ["-std=c++17", "-O1", "-fPIC", "-shared", source, "-o", temporary, "-ldl"]
            subprocess.run([*find_compiler().command, *flags], check=True)
    return target


if __name__ == "__main__":
    sys.exit(main())
