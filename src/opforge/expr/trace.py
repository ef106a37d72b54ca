"""What a formula's function sees while it is traced: `Expr` objects that record operations."""

from __future__ import annotations

import linecache
import numbers
import sys
from typing import Any, NoReturn

import numpy as np

from opforge.errors import DtypeError, SchemaError
from opforge.expr.nodes import Node, ValueType, constant, op

__all__ = ["NOT_ELEMENTWISE", "NOT_ELEMENTWISE_HINT", "Expr", "apply", "as_node", "caller", "is_number", "unite"]


NOT_ELEMENTWISE = frozenset(
    "sum mean var std prod max min amax amin argmax argmin norm cumsum softmax log_softmax matmul dot einsum shape "
    "size ndim reshape view transpose permute T flatten concatenate cat stack gather sort".split()
)
"""Names that authors look for in vain, since they move or reduce elements or ask for the shape."""

NOT_ELEMENTWISE_HINT = "declare the operator with of.kernel if it moves or reduces elements"


class _NoAttributeError(SchemaError, AttributeError):
    """Both the error for people and the one that hasattr() expects."""


class Expr:
    """A traced value of a formula. Supports the arithmetic of NumPy; never has a number in it."""

    __slots__ = ("node",)
    __hash__ = object.__hash__

    def __init__(self, node: Node) -> None:
        """Wrap an expression."""
        self.node = node

    def __repr__(self) -> str:
        """The expression."""
        return f"Expr({self.node!r})"

    def __add__(self, other: object) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: object) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: object) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: object) -> Expr:
        return apply("sub", other, self)

    def __mul__(self, other: object) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: object) -> Expr:
        return apply("mul", other, self)

    def __truediv__(self, other: object) -> Expr:
        return apply("div", self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return apply("div", other, self)

    def __mod__(self, other: object) -> Expr:
        return apply("mod", self, other)

    def __rmod__(self, other: object) -> Expr:
        return apply("mod", other, self)

    def __floordiv__(self, other: object) -> Expr:
        return _floor_divide(self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return _floor_divide(other, self)

    def __pow__(self, other: object) -> Expr:
        return apply("pow", self, other)

    def __rpow__(self, other: object) -> Expr:
        return apply("pow", other, self)

    def __matmul__(self, other: object) -> NoReturn:
        raise _not_elementwise("a matrix product")

    __rmatmul__ = __matmul__

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return apply("abs", self)

    def __lt__(self, other: object) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: object) -> Expr:
        return apply("le", self, other)

    def __gt__(self, other: object) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: object) -> Expr:
        return apply("ge", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return apply("ne", self, other)

    def __and__(self, other: object) -> Expr:
        return apply("logical_and", self, other)

    def __rand__(self, other: object) -> Expr:
        return apply("logical_and", other, self)

    def __or__(self, other: object) -> Expr:
        return apply("logical_or", self, other)

    def __ror__(self, other: object) -> Expr:
        return apply("logical_or", other, self)

    def __xor__(self, other: object) -> Expr:
        return apply("logical_xor", self, other)

    def __rxor__(self, other: object) -> Expr:
        return apply("logical_xor", other, self)

    def __invert__(self) -> Expr:
        return apply("logical_not", self)

    def __bool__(self) -> bool:
        raise SchemaError(
            "a formula has no value to branch on: if, and, or, not, min() and max() do not work on its tensors "
            "and attributes",
            where=caller(),
            hint="use of.where(condition, a, b), & | ~ on conditions, of.minimum, of.maximum, of.clip",
        )

    def _number(self) -> NoReturn:
        where = caller()
        file, _, line = where.rpartition(":")
        text = linecache.getline(file, int(line)) if line.isdigit() else ""
        from opforge.expr import functions

        names = [name for name in functions.OPERATIONS if f"math.{name}(" in text]
        hint = "use of." + " and of.".join(names) if names else "use the functions of opforge, e.g. of.tanh, of.sqrt"
        raise SchemaError(
            "a tensor or attribute of a formula is no number: functions of math, float(), int() and range() do not "
            "take it",
            where=where,
            got=text.strip() or None,
            hint=hint,
        )

    __float__ = __int__ = __index__ = __complex__ = __trunc__ = __floor__ = __ceil__ = _number

    def __round__(self, digits: int | None = None) -> Expr:
        if digits is not None:
            raise SchemaError("round() to digits is not elementwise arithmetic", where=caller(), hint="use of.round")
        return apply("round", self)

    def __iter__(self) -> NoReturn:
        raise _not_elementwise("iteration")

    def __len__(self) -> NoReturn:
        raise _not_elementwise("len()")

    def __getitem__(self, key: object) -> NoReturn:
        raise _not_elementwise("indexing")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        from opforge.expr import functions

        known = "use the functions of opforge, e.g. of.tanh"
        if name in functions.OPERATIONS:
            known = f"use of.{name}(...)"
        elif name in NOT_ELEMENTWISE:
            known = NOT_ELEMENTWISE_HINT
        raise _NoAttributeError(f"a tensor of a formula has no attribute {name!r}", where=caller(), hint=known)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **kwargs: object) -> Any:  # noqa: ANN401
        from opforge.expr import functions

        if method != "__call__" or kwargs or ufunc.__name__ not in functions.UFUNCS:
            raise SchemaError(
                f"numpy.{ufunc.__name__} cannot be traced",
                where=caller(),
                hint="use the functions of opforge: " + ", ".join(sorted(functions.OPERATIONS)),
            )
        return functions.call_ufunc(ufunc.__name__, *inputs)

    def __array_function__(self, function: Any, types: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        from opforge.expr import functions

        ours = functions.ARRAY_FUNCTIONS.get(function.__name__)
        if ours is None:
            raise SchemaError(
                f"numpy.{function.__name__} cannot be traced",
                where=caller(),
                hint="use the functions of opforge: " + ", ".join(sorted(functions.OPERATIONS)),
            )
        return getattr(functions, ours)(*args, **kwargs)


def _not_elementwise(what: str) -> SchemaError:
    return SchemaError(
        f"{what} is not elementwise: a formula computes each element from the elements beside it",
        where=caller(),
        hint=NOT_ELEMENTWISE_HINT,
    )


def caller() -> str:
    """``file:line`` of the code outside this package that is being traced."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        ("opforge.expr", "opforge.schema", "numpy")
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def is_number(value: object) -> bool:
    """Whether a value is a plain number: Python's, NumPy's scalars, 0-d arrays."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, numbers.Real | np.bool_)


def as_node(value: object, type_: ValueType) -> Node:
    """The node of a traced value, or a constant of the given type for a number (numbers are weak)."""
    if isinstance(value, Expr):
        return value.node
    if is_number(value):
        if type_ is ValueType.BOOL and not isinstance(value, bool | np.bool_):
            raise DtypeError("a condition is expected", where=caller(), got=repr(value), hint="compare: x > 0")
        return constant(float(value), type_)  # type: ignore[arg-type]
    raise DtypeError(
        "a formula computes with its tensors, its attributes and numbers only",
        where=caller(),
        got=f"{type(value).__module__}.{type(value).__qualname__}",
        hint="pass arrays as parameters of the formula" if hasattr(value, "shape") else None,
    )


def unite(values: tuple[object, ...]) -> tuple[Node, ...]:
    """Operands of one floating type: numbers take the tensors' type, conditions count as 0 and 1."""
    types = {v.node.type for v in values if isinstance(v, Expr)} - {ValueType.BOOL}
    if len(types) > 1:
        raise DtypeError(
            "operands have different types",
            where=caller(),
            got=", ".join(sorted(t.text for t in types)),
            hint="bring them to one type with of.cast",
        )
    type_ = types.pop() if types else ValueType.T
    if not type_.is_float:
        raise DtypeError(
            "arithmetic of formulas is floating-point",
            where=caller(),
            got=type_.text,
            hint='bring integers back with of.cast(x, "T")',
        )
    nodes = (as_node(v, type_) for v in values)
    return tuple(op("cast", n, type=type_) if n.type is ValueType.BOOL else n for n in nodes)


def apply(name: str, *values: object) -> Expr:
    """An instruction on traced values and numbers."""
    if name.startswith("logical_"):
        nodes = tuple(as_node(v, ValueType.BOOL) for v in values)
        wrong = [n for n in nodes if n.type is not ValueType.BOOL]
        if wrong:
            raise DtypeError(
                f"{name} combines conditions",
                where=caller(),
                got=f"a value of type {wrong[0].type.text}",
                hint="compare: x > 0",
            )
        return Expr(op(name, *nodes))
    return Expr(op(name, *unite(values)))


def _floor_divide(a: object, b: object) -> Expr:
    # Python's definition: the floor of the exact quotient, which floor(a / b) misses where a / b rounds up.
    x, y = (Expr(node) for node in unite((a, b)))
    rest = apply("fmod", x, y)
    whole = apply("round", (x - rest) / y)
    below = (rest != 0) & ((rest < 0) ^ (y < 0))
    floor = Expr(op("select", below.node, (whole - 1).node, whole.node))
    return Expr(op("select", (y == 0).node, (x / y).node, floor.node))
