"""Which architectures of GPUs a library is built for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from opforge.build.cuda_driver import find_devices
from opforge.errors import ArgumentError

__all__ = ["DEFAULT", "chosen_architectures", "gencode"]

DEFAULT = ("sm_80", "sm_90")
"""Where there is no device to ask: with the PTX of the last, they serve everything from Ampere on."""

_FORM = re.compile(r"(?:(?P<kind>sm|compute)_)?(?P<major>\d+)\.?(?P<minor>\d)(?P<variant>[af]?)")


def chosen_architectures(wanted: Iterable[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return what a library embeds: machine code ``sm_*`` and, for devices to come, the PTX of the newest one.

    Args:
        wanted: as a user writes them, "sm_80", "80" or "8.0"; "compute_90" for PTX alone. None: those of the devices
            of this machine, else `DEFAULT`.
        known: those that the compiler knows, as ``sm_80``.

    Raises:
        ArgumentError: none, one that is no architecture, or one that the compiler does not know.
    """
    if wanted is None:
        devices = {f"sm_{device.architecture}" for device in find_devices().devices}
        wanted = sorted(devices & set(known), key=_number) or [one for one in DEFAULT if one in known] or known[-1:]
    chosen: dict[str, None] = {}
    for one in wanted:
        form = _FORM.fullmatch(one.strip())
        code = form and f"sm_{form['major']}{form['minor']}"
        if not form or code not in known:
            raise ArgumentError(
                "no architecture that this compiler knows", where="architectures", expected=", ".join(known), got=one
            )
        chosen[f"{form['kind'] or 'sm'}_{form['major']}{form['minor']}{form['variant']}"] = None
    if not chosen:
        raise ArgumentError("no architecture", where="architectures", expected="one or more, such as sm_80", got="none")
    if not any(one.startswith("compute_") for one in chosen):
        chosen[max(chosen, key=_number).replace("sm_", "compute_")] = None
    return tuple(sorted(chosen, key=lambda one: (one.startswith("compute_"), _number(one))))


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
