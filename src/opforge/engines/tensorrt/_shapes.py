"""The schema's shape rule on TensorRT's dimension expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from opforge.schema.infer import Guards
from opforge.schema.solver import DimValue

__all__ = ["SIZE_GUARDS", "Size", "from_expressions", "to_expressions"]


class _Open:
    """A condition over sizes that are known only when the engine runs; the plugin looks at it then."""

    def __bool__(self) -> bool:
        return True


_OPEN: Final = _Open()


class Size:
    """A size that is no constant, with the arithmetic of the signature language."""

    def __init__(self, trt: Any, builder: Any, expression: Any) -> None:  # noqa: ANN401 - TensorRT's
        """Wrap an expression."""
        self.trt, self.builder, self.expression = trt, builder, expression

    def made(self, operation: str, left: DimValue, right: DimValue) -> DimValue:
        """Apply one of TensorRT's operations; constants come out as numbers."""
        found = self.builder.operation(
            getattr(self.trt.DimensionOperation, operation), self._expression(left), self._expression(right)
        )
        return _value(self.trt, self.builder, found)

    def _expression(self, value: DimValue) -> Any:  # noqa: ANN401
        return value.expression if isinstance(value, Size) else self.builder.constant(int(value))

    def __add__(self, other: DimValue) -> DimValue:
        return self if _is(other, 0) else self.made("SUM", self, other)

    def __radd__(self, other: DimValue) -> DimValue:
        return self if _is(other, 0) else self.made("SUM", other, self)

    def __sub__(self, other: DimValue) -> DimValue:
        return self if _is(other, 0) else self.made("SUB", self, other)

    def __rsub__(self, other: DimValue) -> DimValue:
        return self.made("SUB", other, self)

    def __mul__(self, other: DimValue) -> DimValue:
        return self if _is(other, 1) else self.made("PROD", self, other)

    def __rmul__(self, other: DimValue) -> DimValue:
        return self if _is(other, 1) else self.made("PROD", other, self)

    def __floordiv__(self, other: DimValue) -> DimValue:
        return self if _is(other, 1) else self.made("FLOOR_DIV", self, other)

    def __rfloordiv__(self, other: DimValue) -> DimValue:
        return self.made("FLOOR_DIV", other, self)

    def __mod__(self, other: int) -> Size:
        return self  # only ever compared

    def __ge__(self, other: object) -> _Open:
        return _OPEN

    def __eq__(self, other: object) -> _Open:  # type: ignore[override]
        return _OPEN

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return "?"

    def broadcast(self, left: DimValue, right: DimValue) -> DimValue:
        """Compute the size of two that broadcast: the right one where the left is 1, else the left.

        The maximum would not do: 1 and 0 broadcast to 0.
        """
        for one, other in ((left, right), (right, left)):
            if isinstance(one, int):
                return other if one == 1 else one
        return left + self.made("EQUAL", left, 1) * (right - 1)


def _broadcast(left: DimValue, right: DimValue) -> DimValue:
    sizes = [value for value in (left, right) if isinstance(value, Size)]
    return sizes[0].broadcast(left, right) if sizes else left


SIZE_GUARDS: Final = Guards(decide=bool, require=bool, broadcast=_broadcast)


def from_expressions(trt: Any, builder: Any, expressions: Sequence[Any]) -> list[DimValue]:  # noqa: ANN401
    """Return a shape for ``Operator.bind``: numbers, and sizes that are no constants."""
    return [_value(trt, builder, one) for one in expressions]


def to_expressions(trt: Any, builder: Any, shape: Sequence[DimValue]) -> Any:  # noqa: ANN401
    """Return a shape as TensorRT's ``DimsExprs``."""
    made = trt.DimsExprs(len(shape))
    for place, size in enumerate(shape):
        made[place] = size.expression if isinstance(size, Size) else builder.constant(int(size))
    return made


def _value(trt: Any, builder: Any, expression: Any) -> DimValue:  # noqa: ANN401
    if expression.is_constant():
        return int(expression.get_constant_value())
    return Size(trt, builder, expression)


def _is(value: DimValue, number: int) -> bool:
    return isinstance(value, int) and value == number
