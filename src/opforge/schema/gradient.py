"""Gradient programs: the straight list of operator calls that computes an operator's gradients.

Described in docs/design/schema.md; ``include/opforge/detail/gradient.h`` reads the same text in C++.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from opforge.errors import SchemaError
from opforge.schema.lexer import Cursor, Literal, format_literal
from opforge.schema.signature import Signature

__all__ = ["NONE", "ForwardAttribute", "GradientProgram", "Operand", "Step"]


@dataclass(frozen=True)
class Operand:
    """A value that a gradient program reads.

    Attributes:
        kind: ``i`` forward input, ``o`` forward output, ``g`` gradient of an output, ``v`` result of a step, ``-``
            absent.
        index: counts parameters, not tensors; 0 for ``-``.
    """

    kind: str
    index: int = 0

    def __str__(self) -> str:
        """Write as in the text."""
        return "-" if self.kind == "-" else f"{self.kind}{self.index}"


NONE: Final = Operand("-")
"""Nothing: an absent operand, or a result without gradient."""


@dataclass(frozen=True)
class ForwardAttribute:
    """``@name``: the value of a forward attribute."""

    name: str

    def __str__(self) -> str:
        """Write as in the text."""
        return f"@{self.name}"


@dataclass(frozen=True)
class Step:
    """One operator call.

    Attributes:
        domain: of the operator.
        name: of the operator.
        version: its since_version.
        operands: one per input parameter.
        attributes: in the order of the text.
        results: numbers of the values that it defines, one per output parameter.
    """

    domain: str
    name: str
    version: int
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, ForwardAttribute | Literal], ...]
    results: tuple[int, ...]

    @property
    def key(self) -> str:
        """``domain::Name:version`` of the operator."""
        return f"{self.domain}::{self.name}:{self.version}"

    def __str__(self) -> str:
        """Write as in the text."""
        attributes = ", ".join(
            f"{name} = {value if isinstance(value, ForwardAttribute) else format_literal(value)}"
            for name, value in self.attributes
        )
        operands = ", ".join(map(str, self.operands))
        joint = "; " if operands and attributes else ";" if attributes else ""
        results = ", ".join(f"v{k}" for k in self.results)
        return f"{self.key}({operands}{joint}{attributes}) -> {results}"


@dataclass(frozen=True)
class GradientProgram:
    """A gradient program; ``str()`` of it is canonical.

    Attributes:
        steps: in order.
        results: one per forward input; ``NONE`` = no gradient.
    """

    steps: tuple[Step, ...]
    results: tuple[Operand, ...]

    @classmethod
    def parse(cls, text: str, *, where: str = "") -> GradientProgram:
        """Read a program.

        Args:
            text: as in docs/design/schema.md.
            where: the forward operator, for error messages.

        Raises:
            SchemaError: a syntax error, or a value that is read before it is defined or defined twice.
        """
        cursor = Cursor(text, "gradient", where)
        steps: list[Step] = []
        defined: set[int] = set()
        while not (cursor.kind == "name" and cursor.token == "return"):
            step = _step(cursor, defined)
            steps.append(step)
            cursor.expect(";")
        cursor.advance()
        results = [_operand(cursor, defined)]
        while cursor.accept(","):
            results.append(_operand(cursor, defined))
        cursor.end()
        return cls(tuple(steps), tuple(results))

    def __str__(self) -> str:
        """Write canonically."""
        return "".join(f"{step}; " for step in self.steps) + f"return {', '.join(map(str, self.results))}"

    def check(self, signature: Signature, *, where: str = "") -> None:
        """Check operand numbers, results and attributes against the forward operator's signature.

        Raises:
            SchemaError: a number beyond the signature, a wrong count of results, or an unknown attribute.
        """
        limits = {"i": len(signature.inputs), "o": len(signature.outputs), "g": len(signature.outputs)}
        words = {"i": "inputs", "o": "outputs", "g": "outputs"}
        for operand in (*(o for step in self.steps for o in step.operands), *self.results):
            if operand.kind in limits and operand.index >= limits[operand.kind]:
                expected = f"{limits[operand.kind]} {words[operand.kind]}"
                raise SchemaError(
                    "the gradient reads what is not there", where=where or None, expected=expected, got=operand
                )
        if len(self.results) != len(signature.inputs):
            raise SchemaError(
                "the gradient has the wrong number of results",
                where=where or None,
                expected=f"{len(signature.inputs)}, one per input",
                got=len(self.results),
            )
        declared = {attribute.name for attribute in signature.attributes}
        for step in self.steps:
            for _, value in step.attributes:
                if isinstance(value, ForwardAttribute) and value.name not in declared:
                    expected = ", ".join(sorted(declared)) or "no attributes"
                    raise SchemaError(
                        "the gradient reads an unknown attribute", where=where or None, expected=expected, got=value
                    )

    def prune(self, wanted: Sequence[bool] | None = None) -> GradientProgram:
        """Keep only the steps that the wanted results need.

        Args:
            wanted: one entry per forward input; None = all results.

        Returns:
            A program whose other results are ``NONE``; numbers of values stay as they are.
        """
        asked = [True] * len(self.results) if wanted is None else list(wanted)
        if len(asked) != len(self.results):
            raise ValueError(f"prune: expected {len(self.results)} entries, got {len(asked)}")
        results = tuple(r if keep else NONE for r, keep in zip(self.results, asked, strict=True))
        needed = {r.index for r in results if r.kind == "v"}
        kept: list[Step] = []
        for step in reversed(self.steps):
            if needed.intersection(step.results):
                kept.append(step)
                needed.update(o.index for o in step.operands if o.kind == "v")
        return GradientProgram(tuple(reversed(kept)), results)

    def reads(self, kind: str) -> tuple[int, ...]:
        """Give the numbers of forward inputs (``i``), outputs (``o``) or output gradients (``g``) that are read."""
        operands = (*(o for step in self.steps for o in step.operands), *self.results)
        return tuple(sorted({o.index for o in operands if o.kind == kind}))

    def used_results(self) -> frozenset[int]:
        """Give the numbers of step results that a later step or the return reads; a step's others are unwanted."""
        operands: Iterable[Operand] = (*(o for step in self.steps for o in step.operands), *self.results)
        return frozenset(o.index for o in operands if o.kind == "v")


def _step(cursor: Cursor, defined: set[int]) -> Step:
    domain = cursor.name("an operator or 'return'")
    while cursor.accept("."):
        domain += "." + cursor.name()
    cursor.expect("::")
    name = cursor.name()
    cursor.expect(":")
    if cursor.kind != "int" or len(cursor.token) > 9:
        cursor.fail("a version")
    version = cursor.integer()
    cursor.expect("(")
    operands: list[Operand] = []
    if not cursor.at(";") and not cursor.at(")"):
        operands.append(_operand(cursor, defined))
        while cursor.accept(","):
            operands.append(_operand(cursor, defined))
    attributes: list[tuple[str, ForwardAttribute | Literal]] = []
    if cursor.accept(";"):
        attributes.append(_attribute(cursor))
        while cursor.accept(","):
            attributes.append(_attribute(cursor))
    if not cursor.accept(")"):
        cursor.fail("',' or ')'" if attributes else "',', ';' or ')'")
    cursor.expect("->")
    results = [_result(cursor, defined)]
    while cursor.accept(","):
        results.append(_result(cursor, defined))
    return Step(domain, name, version, tuple(operands), tuple(attributes), tuple(results))


def _attribute(cursor: Cursor) -> tuple[str, ForwardAttribute | Literal]:
    name = cursor.name()
    cursor.expect("=")
    return name, ForwardAttribute(cursor.name()) if cursor.accept("@") else cursor.literal()


def _operand(cursor: Cursor, defined: set[int]) -> Operand:
    if cursor.accept("-"):
        return NONE
    number = _number(cursor, "iogv")
    if number is None:
        cursor.fail("an operand: i, o, g or v with a number, or -")
    if cursor.token[0] == "v" and number not in defined:
        cursor.fail("a value that an earlier step defines")
    return Operand(cursor.advance()[0], number)


def _result(cursor: Cursor, defined: set[int]) -> int:
    number = _number(cursor, "v")
    if number is None or number in defined:
        cursor.fail("a new value: v with a number")
    defined.add(number)
    cursor.advance()
    return number


def _number(cursor: Cursor, kinds: str) -> int | None:
    """Read the number of the operand ahead; None where it is no operand of these kinds."""
    if cursor.kind != "name" or cursor.token[0] not in kinds:
        return None
    digits = cursor.token[1:]
    if not digits.isdecimal() or len(digits) > 6 or (digits[0] == "0" and digits != "0"):
        return None
    return int(digits)
