"""What the process of a check is asked to do: a function to call there, and the words of whoever asked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opforge.schema import Operator
from opforge.schema.author import author_code
from opforge.verify._declared import Declared, declaration_of, declare, declare_all, target_of
from opforge.verify._kernels import Kernels
from opforge.verify._signals import how_to_find

if TYPE_CHECKING:
    from opforge.verify.checking import CheckReport

__all__ = ["Job", "how_to_find_in", "model_job", "operator_job"]


@dataclass(frozen=True)
class Job:
    """A check for a process of its own.

    Attributes:
        name: of what is checked.
        fill: fills the report that it is given; a function at the top of a module, which that process imports.
        arguments: of it, besides the report.
        again: the command that shows a crash again, without level and seed; "" where no command can.
        hosts: whether that command takes the host of the call.
        hint: what to do where no command can.
        find: how the line at fault is found; "" where the check tells it itself.
    """

    name: str
    fill: Callable[..., object]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    again: str = ""
    hosts: bool = False
    hint: str = ""
    find: str = ""


def operator_job(operator: Operator, options: Mapping[str, Any]) -> Job:
    """Check an operator, which that process declares again; options are those of `check` besides level and seed.

    Raises:
        UndeclaredError: no other process can declare it.
    """
    target = shlex.quote(_short(target_of(operator), operator.name))
    return Job(
        operator.qualified_name,
        _check_operator,
        {"declared": declaration_of(operator), "options": options},
        again=f"opforge check {target}",
        hosts=True,
        find="" if options["sanitize"] else how_to_find(target),  # a sanitized check finds the line next
    )


def model_job(path: Path, name: str, kernels: Kernels, against: Path | None) -> Job:
    """Check a model in a process that declares the operators again whose kernels it holds.

    Args:
        path: the model.
        name: of it, as the user has it.
        kernels: what it holds.
        against: the ONNX model that a .bin is held against.

    Raises:
        UndeclaredError: no other process can declare one of them.
    """
    packages = list(dict.fromkeys(_short(target_of(one)) for one in kernels.operators))
    words = [name, *(word for package in packages for word in ("--package", package))]
    if against is not None:
        words += ["--model", str(against)]
    return Job(
        name,
        _check_model,
        {"path": path, "declared": [declaration_of(one) for one in kernels.operators], "against": against},
        again=shlex.join(["opforge", "check", *words]),
        find=how_to_find_in(kernels),
    )


def how_to_find_in(kernels: Kernels) -> str:
    """Say how the line of one of several operators is found; nothing where none is declared."""
    packages = dict.fromkeys(shlex.quote(_short(target_of(one))) for one in kernels.operators)
    return how_to_find(" or ".join(packages)) if packages else ""


def _short(target: str, name: str | None = None) -> str:
    return target.removeprefix(f"{Path.cwd()}/") + (f":{name}" if name else "")


def _check_operator(report: CheckReport, declared: Declared, options: Mapping[str, Any]) -> None:
    from opforge.verify.checking import check

    operator = declare(*declared)
    os.dup2(2, 1)  # what an author's code prints is none of the user's output
    with author_code("the check cannot run", declared[0]):
        check(operator, report.level, seed=report.seed, isolate=False, report=report, **options)


def _check_model(report: CheckReport, path: Path, declared: Sequence[Declared], against: Path | None) -> None:
    from opforge.verify.checking import check

    declare_all(declared)
    os.dup2(2, 1)
    check(path, report.level, seed=report.seed, model=against, isolate=False, report=report)
