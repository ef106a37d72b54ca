"""Packages that the check needs and a machine with python3 and torch may lack: carried along with the libraries.

Each lies in a folder of its own. One that the machine has is left where it is; one with machine code is for the Python
that it was taken from. NumPy is not carried (70 MB): PyTorch cannot do without it where tensors become arrays.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

__all__ = ["carried", "carry", "default_folder", "missing", "rehearses"]

_NEEDED: Final = ("pytest", "click", "ml-dtypes")
_MODULES: Final = ("numpy", "click", "ml_dtypes", "pytest")
_FOLDER: Final = "packages"
_FACTS: Final = "packages.json"


def rehearses() -> bool:
    """Return whether the environment asks for a rehearsal."""
    return os.environ.get("OPFORGE_DEVICE_CHECK") == "emulated"


def default_folder(rehearse: bool) -> Path:
    """Return where ``make device-build`` puts all of it, or where a rehearsal finds and puts its own."""
    return Path("build/device-emulated" if rehearse else "build/device")


def carry(out: Path, needed: Sequence[str] = _NEEDED) -> list[str]:
    """Copy what is needed, with what that needs, from this environment into a folder of `out`; return the names."""
    folder = out / _FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    facts = {}
    for name in _closure(needed):
        distribution = metadata.distribution(name)
        files = [path for path in distribution.files or () if ".." not in path.parts and path.suffix != ".pyc"]
        for path in files:
            target = folder / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(distribution.locate_file(path)), target)
        facts[name] = {"binary": any(".so" in path.suffixes for path in files)}
    folder.mkdir(parents=True, exist_ok=True)
    content = {"python": sys.implementation.cache_tag, "packages": facts}
    (folder / _FACTS).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return list(facts)


def carried(out: Path) -> list[str]:
    """Return the folders of those that this Python lacks and can take, for the end of its path."""
    try:
        content = json.loads((out / _FOLDER / _FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    own = content["python"] == sys.implementation.cache_tag
    return [
        str(out / _FOLDER / name)
        for name, facts in content["packages"].items()
        if not _is_here(name) and (own or not facts["binary"])
    ]


def missing() -> list[str]:
    """Return the modules without which nothing can be checked, and that are not here."""
    return [name for name in _MODULES if importlib.util.find_spec(name) is None]


def _is_here(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _closure(names: Sequence[str]) -> list[str]:
    """Return the packages with those that they require here, without NumPy."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop(0)
        if name in found or name == "numpy":
            continue
        found[name] = None
        for text in metadata.requires(name) or ():
            required = re.match(r"[\w.-]+", text)
            if required is not None and ";" not in text:
                waiting.append(required[0].lower())
    return list(found)
