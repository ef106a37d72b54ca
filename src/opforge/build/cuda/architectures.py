"""Which architectures of GPUs a library is built for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from opforge.build.cuda_driver import find_devices
from opforge.errors import ArgumentError, ToolchainError

__all__ = ["DEFAULT", "chosen_architectures", "gencode", "oldest"]

DEFAULT = ("sm_80", "sm_90")
"""Where there is no device to ask: with the PTX of the last, they serve everything from Ampere on."""

_FORM = re.compile(r"(?:(?P<kind>sm|compute)_)?(?P<major>\d+)\.?(?P<minor>\d)(?P<variant>[af]?)")


def chosen_architectures(wanted: Iterable[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return what a library embeds: machine code ``sm_*`` and, for devices to come, the PTX of the newest one.

    What is built for one architecture or family alone (``sm_90a``, ``sm_100f``) has no PTX that another could take, so
    that none is added to it.

    Args:
        wanted: as a user writes them, "sm_80", "80" or "8.0"; "compute_90" for PTX alone. None: those of the devices
            of this machine, else `DEFAULT`. A device that is newer than the compiler gets PTX.
        known: those that the compiler knows, as ``sm_80``.

    Raises:
        ArgumentError: none, one that is no architecture, or one that the compiler does not know.
        ToolchainError: the compiler makes no code for the devices of this machine.
    """
    if wanted is None:
        devices = [device.architecture for device in find_devices().devices]
        wanted = _of_devices(devices, known) if devices else [one for one in DEFAULT if one in known] or known[-1:]
    chosen: dict[str, None] = {}
    for one in wanted:
        form = _FORM.fullmatch(one.strip())
        number = form and f"{form['major']}{form['minor']}"
        named = form and f"sm_{number}{form['variant']}"
        # NVRTC lists numbers alone.
        if not form or f"sm_{number}" not in known or (named not in known and not all(k[-1].isdigit() for k in known)):
            raise ArgumentError(
                "no architecture that this compiler knows",
                where="architectures",
                expected=", ".join(known),
                got=one,
                hint=_older_compiler(known) if number and int(number) < oldest(known) else None,
            )
        chosen[f"{form['kind'] or 'sm'}_{number}{form['variant']}"] = None
    if not chosen:
        raise ArgumentError("no architecture", where="architectures", expected="one or more, such as sm_80", got="none")
    plain = [one for one in chosen if one[-1].isdigit()]
    if plain and not any(one.startswith("compute_") for one in chosen):
        chosen[max(plain, key=_number).replace("sm_", "compute_")] = None
    return tuple(sorted(chosen, key=lambda one: (one.startswith("compute_"), _number(one))))


def oldest(known: Sequence[str]) -> int:
    """Return the oldest of the architectures that a compiler knows, as a number: 75."""
    return min(map(_number, known))


def _of_devices(devices: Iterable[int], known: Sequence[str]) -> list[str]:
    plain = sorted((one for one in known if one[-1].isdigit()), key=_number)
    found: dict[str, None] = {}
    unserved = []
    for device in sorted(set(devices)):
        before = [one for one in plain if _number(one) <= device]
        if not before:
            unserved.append(f"sm_{device}")
        elif _number(before[-1]) == device:
            found[before[-1]] = None
        else:
            found[before[-1].replace("sm_", "compute_")] = None
    if not found:
        raise ToolchainError(
            "this compiler makes no code for the GPU here",
            where="architectures",
            expected=f"a compiler that knows {', '.join(unserved)}",
            got=f"one that knows {', '.join(plain)}",
            hint=_older_compiler(known),
        )
    return list(found)


def _older_compiler(known: Sequence[str]) -> str:
    return (
        f"this compiler is for GPUs from sm_{oldest(known)} on, CUDA 12 for those from sm_50 on: pip install "
        "nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12, or name a toolkit of CUDA 12 in CUDA_HOME"
    )


def gencode(architectures: Sequence[str], *, together: bool = False) -> list[str]:
    """Return the flags of nvcc for them.

    Args:
        architectures: as of `chosen_architectures`.
        together: translate once, for the oldest, where they differ in nothing that the code uses: half the time.
    """
    if together and all(one[-1].isdigit() for one in architectures):
        codes = [one for one in architectures if one.startswith("sm_")]
        first = f"compute_{min(map(_number, architectures))}"
        return ["-gencode", f"arch={first},code=[{','.join([*codes, first])}]"]
    flags = []
    for one in architectures:
        flags += ["-gencode", f"arch={one.replace('sm_', 'compute_')},code={one}"]
    return flags


def _number(architecture: str) -> int:
    return int("".join(c for c in architecture if c.isdigit()))
