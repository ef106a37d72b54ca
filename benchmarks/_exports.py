"""Where an exported model is kept: its name holds what made it, so that another exporter makes another file."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["keyed"]

_SOURCES = Path(__file__).resolve().parent.parent / "src" / "opforge"
_EXPORTER = (*sorted((_SOURCES / "onnx").glob("*.py")), *sorted((_SOURCES / "ops").rglob("op.py")))
_PACKAGES = ("torch", "transformers", "onnx", "onnx-ir", "onnxscript")
_LENGTH = 10


def keyed(path: Path, made_by: str) -> Path:
    """Return the path with a key before its suffix; files of the same name with another key are removed.

    Args:
        path: what the file is called.
        made_by: ``__file__`` of the module that writes it.
    """
    key = _key(made_by)
    for old in path.parent.glob(f"{path.stem}-{'[0-9a-f]' * _LENGTH}{path.suffix}"):
        if not old.stem.endswith(key):
            old.unlink(missing_ok=True)
    return path.with_stem(f"{path.stem}-{key}")


@lru_cache
def _key(made_by: str) -> str:
    content = hashlib.sha256()
    for file in (Path(made_by), *_EXPORTER):
        content.update(file.read_bytes())
    for package in _PACKAGES:
        try:
            content.update(f"{package} {version(package)}\n".encode())
        except PackageNotFoundError:
            content.update(f"{package} absent\n".encode())
    return content.hexdigest()[:_LENGTH]
