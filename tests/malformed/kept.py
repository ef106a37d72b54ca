"""A pytest plugin: every file that the tests open is kept in the folder $OPFORGE_KEPT_FILES, for the sanitizers.

python -m pytest -p tests.malformed.kept tests/malformed
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from opforge.bin.session import Session
from tests.malformed import limited

FOLDER = Path(os.environ["OPFORGE_KEPT_FILES"])
LARGEST = 1 << 20
"""Bytes of a file that is kept: longer ones are models, not damaged files."""


def keep(data: bytes) -> None:
    """Write a file under the name of its contents."""
    if len(data) <= LARGEST:
        path = FOLDER / f"{hashlib.sha256(data).hexdigest()[:24]}.bin"
        if not path.exists():
            path.write_bytes(data)


@pytest.fixture(autouse=True)
def kept_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what sessions open from files and from memory."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    opened, attempted = Session.__init__, limited.open_session

    def from_file(self: Session, path: Any, *arguments: Any, **options: Any) -> None:
        keep(Path(path).read_bytes() if Path(path).is_file() else b"")
        opened(self, path, *arguments, **options)

    def from_memory(data: bytes) -> Any:
        keep(data)
        return attempted(data)

    monkeypatch.setattr(Session, "__init__", from_file)
    monkeypatch.setattr(limited, "open_session", from_memory)
