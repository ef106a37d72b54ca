"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["permissions", "whole_file"]


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


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary file beside ``path`` to write to; it takes the place of ``path`` when the block ends well.

    After an error, or an interrupt, nothing is left of it and ``path`` is as it was.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(permissions(0o666))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
