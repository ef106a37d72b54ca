"""Find a CUDA toolkit whose parts fit each other, and say why each candidate does not serve.

A toolkit is a folder with ``bin/nvcc``: an installed one, or what NVIDIA's packages put into an environment
(``site-packages/nvidia/cu13``). Those packages do not pin each other, so that one minor version of nvcc easily meets
another of what it calls; ptxas then fails with words that nobody understands. Versions are compared here first.

What a toolkit builds runs on drivers of its own major version and later ones, and on GPUs from its oldest on. So of
several toolkits the first that fits this machine is taken; where none does, or there is no driver, the first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from opforge.build.cuda.architectures import oldest
from opforge.build.cuda_driver import find_devices
from opforge.errors import Candidate, ToolchainError

__all__ = [
    "INSTALL_HINT",
    "PARTS",
    "Misfit",
    "Part",
    "Toolkit",
    "driver_release",
    "find_toolkit",
    "forget_toolkit",
    "misfit",
    "toolkit_candidates",
]

INSTALL_HINT: Final = "pip install 'opforge[cuda]' (nvcc and its parts, 130 MB; a g++ is needed too), or set CUDA_HOME"

_OLDEST: Final = (12, 0)
_PROBE_SECONDS: Final = 60.0  # a fraction of one on an idle machine


@dataclass(frozen=True)
class Part:
    """A part of a toolkit that kernels cannot be built without.

    Attributes:
        name: in messages.
        wheel: the package that holds it.
        places: where it lies in a toolkit, as glob patterns.
    """

    name: str
    wheel: str
    places: tuple[str, ...]


PARTS: Final = (
    Part("ptxas", "nvidia-cuda-nvcc", ("bin/ptxas",)),
    Part("cicc", "nvidia-nvvm", ("nvvm/bin/cicc",)),
    Part("the headers of crt", "nvidia-cuda-crt", ("include/crt/host_config.h", "targets/*/include/crt/host_config.h")),
    Part("cuda_runtime.h", "nvidia-cuda-runtime", ("include/cuda_runtime.h", "targets/*/include/cuda_runtime.h")),
    Part(
        "libcudart_static.a",
        "nvidia-cuda-runtime",
        ("lib64/libcudart_static.a", "lib/libcudart_static.a", "targets/*/lib/libcudart_static.a"),
    ),
    Part(
        "nv/target of cccl",
        "nvidia-cuda-cccl",
        ("include/cccl/nv/target", "include/nv/target", "targets/*/include/cccl/nv/target"),
    ),
)


@dataclass(frozen=True)
class Misfit:
    """Why what a compiler builds does not run on this machine's GPUs.

    Attributes:
        reason: in words.
        wanted: the release that does, "CUDA 12".
        by_driver: whether a newer driver would do too.
    """

    reason: str
    wanted: str
    by_driver: bool


@dataclass(frozen=True)
class Toolkit:
    """A toolkit whose parts are there and fit each other.

    Attributes:
        root: its folder.
        version: of nvcc, e.g. "13.0.88".
        found: what named it, such as "CUDA_HOME".
    """

    root: Path
    version: str
    found: str
    places: tuple[Path, ...] = field(repr=False)

    def __str__(self) -> str:
        return f"nvcc {self.version} ({self.nvcc}, found by {self.found})"

    @property
    def nvcc(self) -> Path:
        """Return the compiler."""
        return self.root / "bin" / "nvcc"

    @property
    def release(self) -> tuple[int, int]:
        """Return major and minor version."""
        return _minor(self.version)

    @property
    def library_folder(self) -> Path:
        """Return the folder of libcudart_static.a, which nvcc's profile does not name in a Python environment."""
        return self.places[[part.name for part in PARTS].index("libcudart_static.a")].parent

    @property
    def include_folders(self) -> tuple[Path, ...]:
        """Return the folders of headers for those who do not come through nvcc."""
        names = [part.name for part in PARTS]
        return (
            self.places[names.index("cuda_runtime.h")].parent,
            self.places[names.index("nv/target of cccl")].parent.parent,
        )

    @cached_property
    def misfit(self) -> Misfit | None:
        """Return why what it builds does not run on this machine."""
        return misfit(self.release, lambda: self.architectures)

    @cached_property
    def identity(self) -> str:
        """Return what a cached result depends on; raises ToolchainError where a part has gone since."""
        try:
            status = [f"{path}:{path.stat().st_size}" for path in (self.nvcc, *self.places)]
        except OSError as error:
            raise self._broken("a part of the CUDA toolkit cannot be read", error) from error
        return hashlib.sha256("\n".join([self.version, *status]).encode()).hexdigest()

    @cached_property
    def newest_host(self) -> dict[str, int]:
        """Return the newest major versions of host compilers that nvcc takes, by kind; those that are known."""
        header = self.places[[part.name for part in PARTS].index("the headers of crt")]
        try:
            text = header.read_text("utf-8", "replace")
        except OSError as error:
            raise self._broken("the CUDA toolkit does not say which C++ compilers it takes", error) from error
        newest = {}
        gcc = re.search(r"^#\s*if __GNUC__ > (\d+)", text, re.MULTILINE)
        clang = re.search(r"__clang_major__ >(=?) (\d+)", text)
        if gcc:
            newest["gcc"] = int(gcc[1])
        if clang:
            newest["clang"] = int(clang[2]) - (1 if clang[1] else 0)
        if not newest:
            words = f"no version of GCC or Clang in {header}"
            raise self._broken("the CUDA toolkit does not say which C++ compilers it takes", words)
        return newest

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        """Return the architectures that nvcc can compile for, as ``sm_80``.

        Raises:
            ToolchainError: nvcc does not run any more, or does not say them.
        """
        what = "nvcc does not say for which architectures it compiles"
        try:
            said = _words([str(self.nvcc), "--list-gpu-code"])
        except (OSError, subprocess.SubprocessError) as error:
            raise self._broken(what, error) from error
        known = tuple(re.findall(r"sm_\d+[af]?", said))
        if not known:
            raise self._broken(what, said.strip() or "no words")
        return known

    def _broken(self, what: str, why: object) -> ToolchainError:
        return ToolchainError(
            what,
            where=str(self),
            expected="a toolkit as it was when its parts were looked at",
            got=why,
            hint="install the toolkit again, or name another in CUDA_HOME",
        )


def driver_release() -> tuple[int, int] | None:
    """Return the newest version of CUDA that this machine's driver serves, or None where there is no GPU."""
    devices = find_devices().devices
    number = int(devices[0].driver) if devices else 0
    return (number // 1000, number % 1000 // 10) if number else None


def misfit(release: tuple[int, int], architectures: Callable[[], Sequence[str]]) -> Misfit | None:
    """Return why what a compiler builds does not run on this machine; None where it does, or there is no GPU.

    Args:
        release: of the compiler.
        architectures: asks it for those that it knows.
    """
    driver = driver_release()
    if driver is None:
        return None
    if release[0] > driver[0]:
        return Misfit(f"the driver here serves CUDA {driver[0]}.{driver[1]}", f"CUDA {driver[0]}", by_driver=True)
    try:
        first = oldest(architectures())
    except ToolchainError:  # which is told where it is asked for code
        return None
    newest = max(device.architecture for device in find_devices().devices)
    if newest < first:
        reason = f"the GPU here is an sm_{newest}, the oldest that it knows is sm_{first}"
        return Misfit(reason, "CUDA 12", by_driver=False)
    return None


_found: dict[tuple[str | None, ...], Toolkit] = {}


def forget_toolkit() -> None:
    """Forget what was found, for tests that change a toolkit in place."""
    _found.clear()


def find_toolkit() -> Toolkit:
    """Return the first toolkit that serves: CUDA_HOME, CUDA_PATH, packages of this environment, PATH, /usr/local.

    One whose results this machine can run goes before the others.

    Raises:
        ToolchainError: none serves; each candidate is listed with its reason.
    """
    key = tuple(os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "PATH"))
    if key in _found:
        return _found[key]
    rejected: list[_Rejected] = []
    unfit: list[Toolkit] = []
    for found, root in toolkit_candidates():
        looked = _examine(found, root)
        if isinstance(looked, _Rejected):
            rejected.append(looked)
        elif looked.misfit is None:
            _found[key] = looked
            return looked
        else:
            unfit.append(looked)
    if unfit:  # what they build may still be for another machine
        _found[key] = unfit[0]
        return unfit[0]
    rows = "".join(f"\n    {c.name}: {c.reason}" for c in rejected) or " no bin/nvcc anywhere"
    hints = [c.hint for c in rejected if c.hint]
    raise ToolchainError(
        "no CUDA toolkit serves",
        expected=f"nvcc {_OLDEST[0]}.{_OLDEST[1]} or newer with parts of its minor version",
        got=f"candidates:{rows}",
        hint=hints[0] if hints else INSTALL_HINT,
    )


class _Rejected(Candidate):
    """A candidate that one command may mend."""

    def __init__(self, name: str, reason: str, hint: str = "") -> None:
        super().__init__(name, reason)
        self.hint = hint


def toolkit_candidates() -> Iterator[tuple[str, Path]]:
    """Give what may be a toolkit: what named it and its folder, each folder once."""
    seen: set[str] = set()
    for found, root in _every_candidate():
        real = os.path.realpath(root)  # Path.resolve raises at a link to itself
        if real not in seen:
            seen.add(real)
            yield found, root


def _every_candidate() -> Iterator[tuple[str, Path]]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield name, Path(os.environ[name])
    for entry in sys.path:
        for nvcc in sorted(Path(entry or ".").glob("nvidia/cu*/bin/nvcc"), reverse=True):
            yield "the packages of this environment", nvcc.parent.parent
    on_path = shutil.which("nvcc")
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent
    for root in (Path("/usr/local/cuda"), *sorted(Path("/usr/local").glob("cuda-*"), reverse=True)):
        if (root / "bin" / "nvcc").is_file():
            yield str(root), root


def _examine(found: str, root: Path) -> Toolkit | _Rejected:
    def no(reason: str, hint: str = "") -> _Rejected:
        return _Rejected(f"{found} ({root})", reason, hint)

    nvcc = root / "bin" / "nvcc"
    if not os.path.isfile(nvcc):  # noqa: PTH113 - Path.is_file raises where a folder may not be read
        return no("there is no bin/nvcc that can be read")
    try:
        said = re.search(r"V(\d+\.\d+\.\d+)", _words([str(nvcc), "--version"]))
    except (OSError, subprocess.SubprocessError) as error:
        return no(f"nvcc does not run: {error}")
    if said is None:
        return no("nvcc does not say its version")
    version = said[1]
    if _minor(version) < _OLDEST:
        return no(f"nvcc {version} is too old, {_OLDEST[0]}.{_OLDEST[1]} is the oldest that serves")
    places: list[Path] = []
    missing: list[Part] = []
    other: list[tuple[Part, str | None]] = []
    for part in PARTS:
        place = next((p for pattern in part.places for p in sorted(root.glob(pattern))), None)
        if place is None:
            missing.append(part)
            continue
        places.append(place)
        try:
            has = _version_of(part, place, root)
            differs = has is not None and _minor(has) != _minor(version)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return no(f"{part.name} does not say its version: {error}")
        if differs:
            other.append((part, has))
    if missing or other:
        words = [f"{part.name} is missing (package {part.wheel})" for part in missing]
        words += [f"{part.name} is of version {has} (package {part.wheel})" for part, has in other]
        return no(f"nvcc {version}, but {', '.join(words)}", _pip(version, [*missing, *(part for part, _ in other)]))
    return Toolkit(root, version, found, tuple(places))


def _pip(version: str, parts: list[Part]) -> str:
    major, minor = _minor(version)
    wheels = dict.fromkeys(part.wheel for part in parts)
    return "pip install " + " ".join(f"'{wheel}=={major}.{minor}.*'" for wheel in wheels)


def _version_of(part: Part, place: Path, root: Path) -> str | None:
    """Return the version of a part: what it says itself, else what its package says; None where neither does."""
    if place.name == "ptxas":
        said = re.search(r"V(\d+\.\d+\.\d+)", _words([str(place), "--version"]))
        return said[1] if said else None
    if place.name == "cuda_runtime.h":
        text = (place.parent / "cuda_runtime_api.h").read_text("utf-8", "replace")
        number = re.search(r"define CUDART_VERSION\s+(\d+)", text)
        return f"{int(number[1]) // 1000}.{int(number[1]) % 1000 // 10}" if number else None
    for folder in (root.parent.parent, root / "dist-info"):  # an environment's packages
        for info in folder.glob(f"{part.wheel.replace('-', '_')}-*.dist-info"):
            return info.name.removesuffix(".dist-info").rpartition("-")[2]
    return None


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _words(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PROBE_SECONDS)
    if done.returncode < 0:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout + done.stderr
