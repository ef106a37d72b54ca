"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opforge.errors import ArgumentError

__all__ = ["permissions", "require_utf8", "whole_file"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Errors of what is written to, whatever file they name: a copy names its source."""


def permissions(wanted: int) -> int:
    """Return the mode that a new file or folder gets under this process's umask.

    Linux tells the umask; elsewhere it can be read only by setting it for a moment.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("Umask:"):
                return wanted & ~int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)
    os.umask(mask)
    return wanted & ~mask


def require_utf8(path: str) -> None:
    """Raise ArgumentError where the bytes of a name are no UTF-8: compilers' input and libraries' calls are."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise ArgumentError(
            "the name holds bytes that are no UTF-8",
            where=path,
            expected="a name in UTF-8, and a locale with it",
            got=repr(os.fsencode(path[problem.start : problem.end])),
            hint="rename the file or folder",
        ) from None


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside ``path`` to write to; it takes the place of ``path`` when the block ends well.

    After an error, or an interrupt, nothing is left of it and ``path`` is as it was.

    Raises:
        OSError: ``path`` cannot be written; it names ``path``.
    """
    temporary: Path | None = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        temporary = Path(name)
        os.close(handle)
        yield temporary
        temporary.chmod(permissions(0o666))
        temporary.replace(path)
    except OSError as problem:
        # Users know the file that they named, not the one beside it.
        about = problem.errno in _FULL or problem.filename in (None, str(temporary)) or temporary is None
        if not about:
            raise
        raise OSError(problem.errno, problem.strerror or str(problem), str(path)) from problem
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
