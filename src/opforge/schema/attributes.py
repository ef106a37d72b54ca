"""Attributes of operators: kinds, defaults, and the one place where a caller's value becomes an attribute value."""

from __future__ import annotations

import math
import numbers
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opforge.errors import ArgumentError, DtypeError, InternalError, OpforgeError

__all__ = ["KINDS", "REQUIRED", "Attribute", "AttributeValue", "Required", "coerce_all", "kind_of", "round_float"]

AttributeValue = int | float | str | bool | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | tuple[bool, ...]
"""What an attribute holds after coercion; lists are tuples, floats are float32 values."""

KINDS: Final[tuple[str, ...]] = ("int", "float", "string", "bool", "ints", "floats", "strings", "bools")
"""Kinds in the order of the ABI: ``KINDS.index(kind) + 1`` is its OPFORGE_ATTRIBUTE number."""


class Required:
    """The type of ``REQUIRED``: an attribute without a default."""

    def __repr__(self) -> str:
        """Give the public name."""
        return "REQUIRED"


REQUIRED: Final = Required()


@dataclass(frozen=True)
class Attribute:
    """A declared attribute.

    Attributes:
        name: keyword by which callers pass it.
        kind: one of ``KINDS``.
        default: coerced value used when the caller gives none, or ``REQUIRED``.
    """

    name: str
    kind: str
    default: AttributeValue | Required = REQUIRED

    def __post_init__(self) -> None:
        """Check the kind and bring the default to its coerced form."""
        if self.kind not in KINDS:
            raise InternalError("unknown attribute kind", expected=", ".join(KINDS), got=self.kind)
        if not isinstance(self.default, Required):
            object.__setattr__(self, "default", self.coerce(self.default))

    @property
    def required(self) -> bool:
        """Whether callers must give it."""
        return isinstance(self.default, Required)

    def coerce(self, value: object, where: str = "") -> AttributeValue:
        """Turn a caller's value into an attribute value.

        Floats are rounded once to float32; integers may stand for floats; nothing else is converted: a bool is
        not an integer, a float is not an integer, an integer is not a bool.

        Args:
            value: what the caller gave.
            where: the operator, for error messages.

        Raises:
            DtypeError: the value has the wrong type.
            ArgumentError: the value does not fit 64 bits (int) or float32 (float).
        """
        place = f"{where}, attribute {self.name}" if where else f"attribute {self.name}"
        if not self.kind.endswith("s"):
            scalar: AttributeValue = _SCALARS[self.kind](value, place, self.kind, value)
            return scalar
        if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
            raise _wrong_type(place, self.kind, value)
        one = _SCALARS[self.kind[:-1]]
        return tuple(one(item, place, self.kind, value) for item in value)


def coerce_all(
    attributes: tuple[Attribute, ...], values: Mapping[str, object], where: str = ""
) -> dict[str, AttributeValue]:
    """Coerce a call's attributes, fill in defaults, and give them in declared order.

    Raises:
        ArgumentError: an attribute is unknown or missing.
        DtypeError: a value has the wrong type.
    """
    result: dict[str, AttributeValue] = {}
    for attribute in attributes:
        if attribute.name in values:
            result[attribute.name] = attribute.coerce(values[attribute.name], where)
        elif isinstance(attribute.default, Required):
            raise ArgumentError(
                "missing attribute", where=where or None, expected=f"{attribute.name}: {attribute.kind}", got="nothing"
            )
        else:
            result[attribute.name] = attribute.default
    for name in values:
        if name not in result:
            known = ", ".join(a.name for a in attributes) or "no attributes"
            raise ArgumentError("unknown attribute", where=where or None, expected=known, got=name)
    return result


def round_float(value: float) -> float:
    """Round to float32 and widen again; a finite value that overflows becomes an infinity."""
    if not math.isfinite(value):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def kind_of(value: object) -> str:
    """Name a value's kind in the words of signatures, for error messages."""
    if _is_bool(value):
        return "bool"
    if isinstance(value, numbers.Integral) or _has_index(value):
        return "int"
    if isinstance(value, numbers.Real):
        return "float"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list | tuple):
        kinds = list(dict.fromkeys(kind_of(item) for item in value))
        if not kinds:
            return "an empty list"
        return kinds[0] + "s" if len(kinds) == 1 else "a list of " + " and ".join(kinds)
    return type(value).__name__


def _is_bool(value: object) -> bool:
    # NumPy's bool is no subclass of bool, and asking numpy would import it.
    return isinstance(value, bool) or (type(value).__name__ in ("bool", "bool_") and type(value).__module__ == "numpy")


def _has_index(value: object) -> bool:
    """Whether it is an integer of another library (a symbolic integer); arrays have __index__ too, but a shape."""
    return hasattr(value, "__index__") and not hasattr(value, "shape") and not isinstance(value, type)


def _int(value: object, place: str, kind: str, whole: object) -> int:
    if _is_bool(value) or not (isinstance(value, numbers.Integral) or _has_index(value)):
        raise _wrong_type(place, kind, whole)
    number = int(value)  # type: ignore[call-overload]
    if not -(2**63) <= number < 2**63:
        raise ArgumentError("value out of range", where=place, expected="a 64-bit integer", got=number)
    return int(number)


def _float(value: object, place: str, kind: str, whole: object) -> float:
    if _is_bool(value) or not (isinstance(value, numbers.Real) or _has_index(value)):
        raise _wrong_type(place, kind, whole)
    try:
        number = float(value)  # type: ignore[arg-type]
        rounded = round_float(number)
    except OverflowError:
        number, rounded = 0.0, math.inf
    if math.isinf(rounded) and not math.isinf(number):
        raise ArgumentError("value out of range", where=place, expected="a float32", got=value)
    return rounded


def _string(value: object, place: str, kind: str, whole: object) -> str:
    if not isinstance(value, str):
        raise _wrong_type(place, kind, whole)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ArgumentError("string is not valid UTF-8", where=place, got=repr(value)) from None
    return str(value)


def _bool(value: object, place: str, kind: str, whole: object) -> bool:
    if not _is_bool(value):
        raise _wrong_type(place, kind, whole)
    return bool(value)


def _wrong_type(place: str, kind: str, value: object) -> OpforgeError:
    # Whoever passes a tensor wants it trained or computed, which only an input can be.
    hint = "an attribute is a plain value; what is computed or trained is an input" if hasattr(value, "shape") else None
    return DtypeError("wrong attribute type", where=place, expected=kind, got=kind_of(value), hint=hint)


_SCALARS: Final[dict[str, Callable[[object, str, str, object], Any]]] = {
    "int": _int,
    "float": _float,
    "string": _string,
    "bool": _bool,
}
