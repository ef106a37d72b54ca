"""Tokens and literals shared by signatures, types and gradient programs.

``include/opforge/detail/lexer.h`` is the same scanner in C++; both give the same words for the same mistake.
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn

from opforge.errors import SchemaError
from opforge.schema.attributes import round_float

__all__ = ["MAX_DEPTH", "Cursor", "Literal", "format_float", "format_literal"]

Literal = int | float | str | bool | tuple["int | float | str | bool", ...]
"""A literal: an int, float, string, bool, or a list of these as a tuple."""

MAX_DEPTH: Final = 64
"""Nesting of parentheses that is read; a bound on recursion for texts from foreign files."""

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
      (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<float>[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
    | (?P<int>[0-9]+)
    | (?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")
    | (?P<mark>->|//|::|[()\[\],;:?*+\-=@.])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)


class Cursor:
    """A scanner over one text with one token of look-ahead.

    Attributes:
        kind: of the token ahead: name, int, float, string, mark, end, or bad where no token begins.
        token: its text.
    """

    def __init__(self, text: str, subject: str, where: str) -> None:
        """Begin at the first token.

        Args:
            text: what is read.
            subject: what the text is, for messages ("signature", "types", "gradient").
            where: the operator, for messages.
        """
        self.text = text
        self.subject = subject
        self.where = where
        self._next = 0
        self.advance()

    def advance(self) -> str:
        """Step over the token ahead and give its text."""
        previous = getattr(self, "token", "")
        match = _TOKEN.match(self.text, self._next)
        if match is None or match.lastgroup is None:
            space = re.compile(r"[ \t\r\n]*").match(self.text, self._next)
            self.kind, self.token = "bad", ""
            self._start = space.end() if space else self._next
        else:
            self.kind = match.lastgroup
            self.token = match.group(self.kind)
            self._start = match.start(self.kind)
            self._next = match.end()
        return previous

    def fail(self, expected: str) -> NoReturn:
        """Raise a SchemaError that points at the token ahead."""
        shown = re.sub(r"[\x00-\x1f]", " ", self.text)
        raise SchemaError(
            f"syntax error in {self.subject} at column {self._start + 1}",
            where=self.where or None,
            expected=expected,
            got=f"{shown}\n       {' ' * self._start}^",
        )

    def at(self, mark: str) -> bool:
        """Whether this mark is ahead."""
        return self.kind == "mark" and self.token == mark

    def accept(self, mark: str) -> bool:
        """Step over a mark if it is ahead."""
        if self.at(mark):
            self.advance()
            return True
        return False

    def expect(self, mark: str) -> None:
        """Step over a mark, or fail."""
        if not self.accept(mark):
            self.fail(f"'{mark}'")

    def name(self, expected: str = "a name") -> str:
        """Read a name."""
        if self.kind != "name":
            self.fail(expected)
        return self.advance()

    def end(self) -> None:
        """Expect the end of the text."""
        if self.kind != "end":
            self.fail("the end")

    def integer(self, *, negative: bool = False) -> int:
        """Read digits as a 64-bit integer; ``negative`` when a minus stands before them."""
        value = int(self.token) if len(self.token) < 40 else 2**64
        if value >= 2**63 + negative:
            self.fail("an integer of 64 bits")
        self.advance()
        return -value if negative else value

    def literal(self) -> Literal:
        """Read an int, float, string, bool, or a list of these."""
        if not self.accept("["):
            return self._scalar("a literal")
        items: list[int | float | str | bool] = []
        if not self.accept("]"):
            items.append(self._scalar("a literal"))
            while self.accept(","):
                items.append(self._scalar("a literal"))
            if not self.accept("]"):
                self.fail("',' or ']'")
        return tuple(items)

    def _scalar(self, expected: str) -> int | float | str | bool:
        negative = self.accept("-")
        if self.kind == "int":
            return self.integer(negative=negative)
        if self.kind == "float":
            number = float(self.token)
            self.advance()
            return -number if negative else number
        if self.kind == "name" and self.token in ("inf", "nan"):
            number = math.inf if self.advance() == "inf" else math.nan
            return -number if negative else number
        if negative:
            self.fail("a number")
        if self.kind == "name" and self.token.lower() in ("true", "false") and self.token[1:].islower():
            return self.advance().lower() == "true"
        if self.kind == "string":
            try:
                value_text = json.loads(self.token)
                value_text.encode("utf-8")
            except ValueError:
                self.fail("a JSON string")
            self.advance()
            return str(value_text)
        self.fail(expected)


def format_float(value: float) -> str:
    """Write a float attribute's value: the fewest digits that give the same float32."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    wanted = round_float(value)
    for digits in range(1, 10):
        text = f"{wanted:.{digits}g}"
        if round_float(float(text)) == wanted:
            break
    return text if re.search(r"[.e]", text) else text + ".0"


def format_literal(value: object) -> str:
    """Write a literal as ``Cursor.literal`` reads it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(format_literal(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(value)
