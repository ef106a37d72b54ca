"""What a declaration must be: names, versions and rules; how names look in hosts, and where a declaration stands."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterable
from typing import Final

from opforge.errors import SchemaError

__all__ = ["AUTOCAST_RULES", "NAN_POLICIES", "caller_location", "check_declaration", "check_names", "snake_case"]

AUTOCAST_RULES: Final = ("promote", "f32", "lower", "none")
NAN_POLICIES: Final = ("propagate", "ignore")


def check_declaration(domain: str, name: str, since_version: int, autocast: str, nan_policy: str) -> str:
    """Check what does not depend on the signature; return the qualified name, by which errors call the operator.

    Raises:
        SchemaError: a name, the version or a rule is none.
    """
    where = f"{domain}::{name}"
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", domain, re.ASCII):
        raise SchemaError("bad domain", where=where, expected='dotted names, e.g. "com.example"', got=repr(domain))
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name, re.ASCII):
        raise SchemaError("bad operator name", where=where, expected="CamelCase, e.g. CustomGELU", got=repr(name))
    if isinstance(since_version, bool) or not isinstance(since_version, int) or not 1 <= since_version < 2**31:
        raise SchemaError("bad since_version", where=where, expected="an integer from 1", got=repr(since_version))
    _one_of(where, "autocast", autocast, AUTOCAST_RULES)
    _one_of(where, "nan_policy", nan_policy, NAN_POLICIES)
    return where


def check_names(where: str, parameters: Iterable[str], host_name: str) -> None:
    """Check names that become Python's.

    Raises:
        SchemaError: one is a keyword, or no identifier.
    """
    for parameter in parameters:
        if keyword.iskeyword(parameter):
            raise SchemaError("a parameter is named like a Python keyword", where=where, got=parameter)
    if not host_name.isidentifier() or keyword.iskeyword(host_name):
        raise SchemaError("bad host_name", where=where, expected="a Python identifier", got=repr(host_name))


def snake_case(name: str) -> str:
    """Turn CamelCase into snake_case: PReLU -> p_re_lu, CustomGELU -> custom_gelu, Conv2D -> conv2d."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])", "_", name).lower()


def caller_location() -> tuple[str, str]:
    """Give module and ``file:line`` of the nearest caller outside opforge (its own operators count as outside)."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith("opforge.") or name.startswith("opforge.ops"):
            return name, f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "", ""


def _one_of(where: str, what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SchemaError(f"bad {what}", where=where, expected=", ".join(allowed), got=repr(value))
