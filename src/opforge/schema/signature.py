"""The signature language: ``(x: T[m, k], w: T[k, n]; alpha: float = 1.0) -> (y: T[m, n])``.

Described in docs/design/schema.md; ``include/opforge/detail/signature.h`` reads the same language in C++.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from opforge.errors import ArgumentError, DtypeError, SchemaError
from opforge.schema import infer
from opforge.schema.attributes import KINDS, Attribute
from opforge.schema.dims import Broadcast, Dim, Rest, parse_dim
from opforge.schema.dtypes import DECLARABLE, DType
from opforge.schema.infer import PLAIN, Binding, Guards, ShapeLike
from opforge.schema.lexer import Cursor, format_literal

__all__ = ["Parameter", "Signature", "format_types", "parse_types"]

_DTYPES: Final = {d.name: d for d in DECLARABLE}
_DTYPE_WORDS: Final = ", ".join(_DTYPES)


@dataclass(frozen=True)
class Parameter:
    """An input or output.

    Attributes:
        name: its name.
        type: a type variable (begins with an upper-case letter) or a dtype name.
        dims: its dimensions.
        optional: ``name?``, may be absent.
        variadic: ``*name``, one or more tensors of the declared shape and type.
    """

    name: str
    type: str
    dims: tuple[Dim, ...]
    optional: bool = False
    variadic: bool = False

    @property
    def is_generic(self) -> bool:
        """Whether its type is a type variable."""
        return self.type[0].isupper()

    @property
    def dtype(self) -> DType | None:
        """Its dtype where that is fixed, None for a type variable."""
        return _DTYPES.get(self.type)

    @property
    def rank(self) -> int | None:
        """Number of dimensions, or None where ``*S`` or ``bcast`` stands for any number."""
        return None if any(isinstance(d, Rest | Broadcast) for d in self.dims) else len(self.dims)

    @property
    def shape_text(self) -> str:
        """Type and dimensions, e.g. ``T[m, n]``."""
        return f"{self.type}[{', '.join(map(str, self.dims))}]"

    def __str__(self) -> str:
        """Write in the signature language."""
        return f"{'*' if self.variadic else ''}{self.name}{'?' if self.optional else ''}: {self.shape_text}"


@dataclass(frozen=True)
class Signature:
    """A parsed signature; ``str()`` of it is canonical and parses to an equal one.

    Attributes:
        inputs: input parameters.
        attributes: declared attributes.
        outputs: output parameters.
        type_variables: in the order of first appearance.
    """

    inputs: tuple[Parameter, ...]
    attributes: tuple[Attribute, ...]
    outputs: tuple[Parameter, ...]
    type_variables: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Collect the type variables."""
        generic = [p.type for p in (*self.inputs, *self.outputs) if p.is_generic]
        object.__setattr__(self, "type_variables", tuple(dict.fromkeys(generic)))

    @classmethod
    def parse(cls, text: str, *, where: str = "") -> Signature:
        """Read a signature and check that it makes sense.

        Args:
            text: in the signature language.
            where: the operator, for error messages.

        Raises:
            SchemaError: a syntax error, with its column, or a declaration that cannot be bound.
        """
        cursor = Cursor(text, "signature", where)
        cursor.expect("(")
        inputs = _parameters(cursor, ";)", "',', ';' or ')'")
        attributes: list[Attribute] = []
        if cursor.accept(";"):
            attributes.append(_attribute(cursor))
            while cursor.accept(","):
                attributes.append(_attribute(cursor))
        if not cursor.accept(")"):
            cursor.fail("',' or ')'")
        cursor.expect("->")
        cursor.expect("(")
        outputs = _parameters(cursor, ")", "',' or ')'")
        cursor.expect(")")
        cursor.end()
        signature = cls(tuple(inputs), tuple(attributes), tuple(outputs))
        infer.check_signature(signature, where)
        return signature

    def __str__(self) -> str:
        """Write canonically."""
        attributes = ", ".join(
            f"{a.name}: {a.kind}" + ("" if a.required else f" = {format_literal(a.default)}") for a in self.attributes
        )
        inputs = ", ".join(map(str, self.inputs))
        head = f"{inputs}; {attributes}" if inputs and attributes else f"; {attributes}" if attributes else inputs
        return f"({head}) -> ({', '.join(map(str, self.outputs))})"

    @property
    def variadic(self) -> Parameter | None:
        """The variadic input, or None."""
        return self.inputs[-1] if self.inputs and self.inputs[-1].variadic else None

    def is_trailing_optional(self, parameter: Parameter) -> bool:
        """Whether the parameter and every input after it are optional."""
        start = self.inputs.index(parameter)
        return all(p.optional for p in self.inputs[start:])

    def expected_inputs(self) -> str:
        """Say in words how many inputs a call takes, e.g. ``2 to 3 (x, w, bias?)``."""
        least = max((k + 1 for k, p in enumerate(self.inputs) if not p.optional), default=0)
        most = len(self.inputs)
        count = f"{most} or more" if self.variadic else str(most) if least == most else f"{least} to {most}"
        shown = ", ".join(f"{'*' if p.variadic else ''}{p.name}{'?' if p.optional else ''}" for p in self.inputs)
        return f"{count} ({shown})" if shown else count

    def bind(
        self,
        shapes: Sequence[ShapeLike],
        dtypes: Sequence[DType | None],
        attributes: Mapping[str, object] | None = None,
        *,
        where: str = "",
        types: Mapping[str, tuple[DType, ...]] | None = None,
        guards: Guards = PLAIN,
    ) -> Binding:
        """Check a call's shapes, dtypes and attributes, and infer the outputs.

        Args:
            shapes: one entry per input tensor, flat: the tensors of the variadic input stand at the end. A shape is
                a sequence of dimensions, None (rank unknown), or ``ABSENT`` (an optional input that is not there;
                those at the end may be left out). A dimension is an int, a symbolic int (torch SymInt), a name or
                expression as text ("N", "2*N + 1"), or None or a negative int (unknown).
            dtypes: one entry per input tensor; None = unknown or absent.
            attributes: as the caller gave them.
            where: the operator, for error messages.
            types: the dtypes that each type variable may take; None = any.
            guards: how symbolic conditions are decided.

        Raises:
            ArgumentError: wrong number of inputs, rank, dimension or attribute.
            DtypeError: wrong dtype or attribute type.
        """
        return infer.bind(self, shapes, dtypes, attributes or {}, where, types, guards)


def parse_types(
    types: str | Mapping[str, Iterable[DType | str]], signature: Signature, *, where: str = ""
) -> dict[str, tuple[DType, ...]]:
    """Read the dtypes of each type variable, in the order of the signature.

    Args:
        types: ``"T: f32 f64; I: i32 i64"``, or a mapping from each variable to its dtypes.
        signature: whose variables they are.
        where: the operator, for error messages.

    Raises:
        SchemaError: a variable has no dtypes, is unknown or named twice, or a dtype cannot be declared.
    """
    found = _types_of_text(types, where) if isinstance(types, str) else _types_of_mapping(types, where)
    for name in found:
        if name not in signature.type_variables:
            raise SchemaError(
                "types are given for a variable that the signature does not have",
                where=where or None,
                expected=", ".join(signature.type_variables) or "no type variables",
                got=name,
            )
    for name in signature.type_variables:
        if name not in found:
            what = "no dtypes are given for a type variable"
            raise SchemaError(what, where=where or None, expected=f"{name}: dtypes", got="nothing")
    return {name: found[name] for name in signature.type_variables}


def format_types(types: Mapping[str, Iterable[DType]]) -> str:
    """Write types text, e.g. ``T: f32 f64; I: i32 i64``."""
    return "; ".join(f"{name}: {' '.join(d.name for d in dtypes)}" for name, dtypes in types.items())


def _types_of_text(text: str, where: str) -> dict[str, tuple[DType, ...]]:
    cursor = Cursor(text, "types", where)
    found: dict[str, tuple[DType, ...]] = {}
    while cursor.kind != "end":
        if cursor.kind != "name" or cursor.token in found:
            cursor.fail("a new type variable")
        variable = cursor.advance()
        cursor.expect(":")
        dtypes: list[DType] = []
        while cursor.kind == "name":
            dtype = _DTYPES.get(cursor.token)
            if dtype is None or dtype in dtypes:
                break
            dtypes.append(dtype)
            cursor.advance()
        if not dtypes or (cursor.kind != "end" and not cursor.at(";")):
            cursor.fail(f"one of {_DTYPE_WORDS}, each once")
        found[variable] = tuple(dtypes)
        if not cursor.accept(";"):
            cursor.end()
    return found


def _types_of_mapping(types: Mapping[str, Iterable[DType | str]], where: str) -> dict[str, tuple[DType, ...]]:
    found: dict[str, tuple[DType, ...]] = {}
    for name, given in types.items():
        values = [given] if isinstance(given, str | DType) else list(given)
        try:
            dtypes = tuple(dict.fromkeys(DType.parse(value) for value in values))
        except DtypeError as error:
            what = f"bad dtype for {name}"
            raise SchemaError(what, where=where or None, expected=_DTYPE_WORDS, got=error.got) from None
        if not dtypes or not set(dtypes) <= set(DECLARABLE):
            raise SchemaError(
                f"bad dtype for {name}",
                where=where or None,
                expected=_DTYPE_WORDS,
                got=", ".join(d.name for d in dtypes) or "nothing",
            )
        found[name] = dtypes
    return found


def _parameters(cursor: Cursor, closers: str, expected: str) -> list[Parameter]:
    found: list[Parameter] = []
    if any(cursor.at(mark) for mark in closers):
        return found
    found.append(_parameter(cursor))
    while cursor.accept(","):
        found.append(_parameter(cursor))
    if not any(cursor.at(mark) for mark in closers):
        cursor.fail(expected)
    return found


def _parameter(cursor: Cursor) -> Parameter:
    variadic = cursor.accept("*")
    name = cursor.name()
    optional = cursor.accept("?")
    cursor.expect(":")
    if cursor.kind != "name" or not (re.match("[A-Z]", cursor.token) or cursor.token in _DTYPES):
        cursor.fail(f"a type: a name that begins with an upper-case letter, or one of {_DTYPE_WORDS}")
    kind = cursor.advance()
    cursor.expect("[")
    dims: list[Dim] = []
    if not cursor.at("]"):
        dims.append(parse_dim(cursor))
        while cursor.accept(","):
            dims.append(parse_dim(cursor))
    if not cursor.accept("]"):
        cursor.fail("',' or ']'")
    return Parameter(name, kind, tuple(dims), optional, variadic)


def _attribute(cursor: Cursor) -> Attribute:
    name = cursor.name()
    cursor.expect(":")
    if cursor.kind != "name" or cursor.token not in KINDS:
        cursor.fail("an attribute kind: " + ", ".join(KINDS))
    kind = cursor.advance()
    if not cursor.accept("="):
        return Attribute(name, kind)
    try:
        return Attribute(name, kind, Attribute(name, kind).coerce(cursor.literal(), cursor.where))
    except (ArgumentError, DtypeError) as error:
        raise SchemaError(error.what, where=error.where, expected=error.expected, got=error.got) from None
