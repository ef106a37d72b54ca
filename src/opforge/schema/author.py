"""Exceptions of an author's own Python code, turned into errors that name file and line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opforge.errors import ArgumentError, OpforgeError, SchemaError

__all__ = ["author_code", "author_function"]


@contextmanager
def author_code(what: str, where: str) -> Iterator[None]:
    """Turn an exception of the user's own Python code into an error that names file and line.

    Args:
        what: what failed, e.g. "the operator package does not load".
        where: what the user named.
    """
    try:
        yield
    except OpforgeError:
        raise
    except SyntaxError as problem:
        place = f"{problem.filename}:{problem.lineno}"
        line = f"\n    {problem.text.strip()}" if problem.text else ""
        raise ArgumentError(f"{what}: {problem.msg}", where=where, got=f"{place}{line}") from problem
    except Exception as problem:
        frames = [f for f in traceback.extract_tb(problem.__traceback__) if _is_authors(f.filename)]
        if not frames:
            raise  # no line of the user's is involved: the fault is ours
        rows = "".join(f"\n    {f.filename}:{f.lineno}: {f.line}" for f in frames[-3:])
        hint = "correct the lines named above"
        if isinstance(problem, ModuleNotFoundError) and problem.name:
            extra = problem.name in ("torch", "onnxruntime")
            hint = f"pip install 'opforge[{problem.name}]'" if extra else f"install {problem.name}, or {hint}"
        raise ArgumentError(what, where=where, got=f"{type(problem).__name__}: {problem}{rows}", hint=hint) from problem


@contextmanager
def author_function(what: str, where: str, expected: str | None = None) -> Iterator[None]:
    """Turn what a function of an author raises into an error that names its lines, wherever its file lies.

    Args:
        what: what failed, e.g. "the reference raises".
        where: the operator whose function it is.
        expected: what the function should have done.
    """
    try:
        yield
    except OpforgeError:
        raise
    except Exception as problem:
        frames = traceback.extract_tb(problem.__traceback__)[1:]  # the first one is the caller's
        shown = [f for f in frames if _is_authors(f.filename)] or frames[:1]
        rows = "".join(f"\n    {f.filename}:{f.lineno}: {f.line}" for f in shown[-3:])
        raise SchemaError(
            what, where=where, expected=expected, got=f"{type(problem).__name__}: {problem}{rows}"
        ) from problem


def _is_authors(file: str) -> bool:
    """Whether a frame's file belongs to the user rather than to Python, an installed library or this tool."""
    tool = Path(__file__).parents[1]
    library = "site-packages" in file or file.startswith(("<", sys.base_prefix))
    return not library and not Path(file).is_relative_to(tool)
