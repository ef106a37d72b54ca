"""A library that NVRTC compiles, for the tests of the launcher on a device; for a rehearsal the emulator's kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from unittest import mock

from opforge.build.cuda import launcher
from opforge.build.cuda.builder import cuda_plan
from opforge.build.plan import plan_library
from opforge.cli._targets import load_operators
from opforge.schema.dtypes import DType
from tools.device_check.emulated_images import use_emulated_nvrtc

__all__ = ["LAUNCHED", "build_launched"]

LAUNCHED: Final = "launched"
"""Name of the folder beside the other libraries; hosts do not look there."""
_FORMULAS: Final = Path(__file__).parents[2] / "tests" / "device" / "formulas.py"
_REHEARSED: Final = ("f32",)  # each dtype takes the emulator's compiler seconds


def build_launched(out: Path, architectures: Sequence[str], *, emulated: bool) -> Path:
    """Build the library of the device tests' formula and its gradient into a folder; return its path."""
    (operator,) = load_operators(str(_FORMULAS))
    plan = cuda_plan(plan_library([operator]))
    plan = replace(plan, operators=(operator, operator.gradient_operator))
    with _emulated() if emulated else contextlib.nullcontext():
        built = launcher.build_with_nvrtc(plan, architectures=architectures)
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{plan.name}.so"
    target.write_bytes(built.read_bytes())
    return target


@contextlib.contextmanager
def _emulated() -> Iterator[None]:
    with contextlib.ExitStack() as stack:

        def put(module: object, name: str, value: object) -> None:
            stack.enter_context(mock.patch.object(module, name, value))

        use_emulated_nvrtc(put)
        put(launcher, "dtype_choices", lambda operator: iter([(DType.parse(name),) for name in _REHEARSED]))
        yield
