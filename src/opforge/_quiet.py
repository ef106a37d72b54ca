"""What TensorFlow and LiteRT log of themselves, kept out of what commands say; a user's own setting stands.

``TF_CPP_MIN_LOG_LEVEL`` silences most of it. What these libraries write before they read it, or without asking, is
taken out of the standard error of the process while they start; everything else that is written meanwhile follows
when they have.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

__all__ = ["quiet", "quiet_commands"]

_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
_NOISE: Final = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\)|I\d{4} [\d:.]+ +\d+ |[\d-]{10} [\d:.]+: I "
    r"|To enable the following instructions: |INFO: Created TensorFlow Lite"
)
_commands = False


def quiet_commands() -> None:
    """Make this process one of a command: what the libraries log is not its output. Harmless when repeated."""
    global _commands
    os.environ.setdefault(_LEVEL, "3")
    if not _commands:
        _commands = True
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Has TensorFlow imported under `quiet`, whoever imports it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "tensorflow":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next((found for other in others if (found := other.find_spec(name, path, target))), None)
        if spec is not None and spec.loader is not None:  # which is asked for by others too, who import nothing
            execute = spec.loader.exec_module

            def quietly(module: ModuleType) -> None:
                with quiet():
                    execute(module)

            spec.loader.exec_module = quietly  # type: ignore[method-assign]
        return spec


@contextmanager
def quiet() -> Iterator[None]:
    """Take the libraries' notices out of standard error while they start, in a process of a command."""
    if not _commands or os.environ.get(_LEVEL, "0") == "0":
        yield
        return
    sys.stderr.flush()
    try:
        before = os.dup(2)
    except OSError:  # a process without a standard error
        yield
        return
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            log.seek(0)
            for line in log:
                if not _NOISE.match(line.decode(errors="replace")):
                    os.write(2, line)
