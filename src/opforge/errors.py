"""The exception family and its message form.

Every error answers five questions: what failed, where (operator, argument, node, section), what was
expected, what was got, and what to do. A user's mistake is a ``ValueError`` or ``TypeError``; a fault of
opforge says that it is ours.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "BuildError",
    "Candidate",
    "CandidateError",
    "CheckFailure",
    "CorruptFileError",
    "DtypeError",
    "EngineCrash",
    "ExportError",
    "InternalError",
    "MissingOperatorError",
    "OpforgeError",
    "SchemaError",
    "ToolchainError",
    "UnsupportedError",
]


class OpforgeError(Exception):
    """Base of all errors raised by opforge.

    Attributes:
        what: what failed, one sentence without a final full stop.
        where: operator, argument, node, section or file.
        expected: what would have been right.
        got: what was found.
        hint: what to do.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        expected: object = None,
        got: object = None,
        hint: str | None = None,
    ) -> None:
        """Keep the five answers; the message joins those that are given."""
        self.what = what
        self.where = where
        self.expected = expected
        self.got = got
        self.hint = hint
        super().__init__(self._message())

    def _message(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        lines = [head]
        if self.expected is not None:
            lines.append(f"  expected: {self.expected}")
        if self.got is not None:
            lines.append(f"  got: {self.got}")
        if self.hint is not None:
            lines.append(f"  to do: {self.hint}")
        return "\n".join(lines)


class ArgumentError(OpforgeError, ValueError):
    """A value, shape or name that the caller passed is wrong."""


class DtypeError(OpforgeError, TypeError):
    """A dtype or an attribute's type is wrong."""


class SchemaError(OpforgeError, ValueError):
    """A declaration (signature, types, gradient, formula) is wrong."""


class UnsupportedError(OpforgeError, ValueError):
    """The request is valid, but nothing here serves it."""


class ExportError(OpforgeError, ValueError):
    """A model cannot be exported or converted as it stands."""


class CorruptFileError(OpforgeError, ValueError):
    """A file is damaged, truncated or hostile."""


class MissingOperatorError(OpforgeError, ValueError):
    """A model needs an operator that is not registered or a kernel library that is not found."""


class ToolchainError(OpforgeError, RuntimeError):
    """A compiler or tool is missing or unfit."""


class BuildError(OpforgeError, RuntimeError):
    """A compilation failed; the message carries the compiler's words."""


class EngineCrash(OpforgeError, RuntimeError):
    """An engine ended the process that it ran in, or gave no answer in time."""


class CheckFailure(OpforgeError, AssertionError):
    """A check or a comparison failed."""


class InternalError(OpforgeError, RuntimeError):
    """A mistake of opforge itself."""

    def _message(self) -> str:
        return super()._message() + "\n  this is a fault of opforge, please report it with the message above"


class Candidate:
    """One rejected candidate and its reason."""

    def __init__(self, name: str, reason: str) -> None:
        """Name the candidate and say why it was not taken."""
        self.name = name
        self.reason = reason


class CandidateError(UnsupportedError):
    """No candidate (kernel, compiler, engine, library) fits; each is listed with its reason."""

    def __init__(
        self,
        what: str,
        candidates: list[Candidate],
        *,
        where: str | None = None,
        expected: object = None,
        hint: str | None = None,
    ) -> None:
        """Join the candidates and their reasons into the message."""
        self.candidates = candidates
        rows = "".join(f"\n    {c.name}: {c.reason}" for c in candidates) or " none"
        super().__init__(what, where=where, expected=expected, got=f"candidates:{rows}", hint=hint)
