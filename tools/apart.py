"""Packages in a folder of their own under build/, which stands before the environment's on the path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "install", "path"]

ROOT = Path(__file__).resolve().parent.parent


def install(name: str) -> Path:
    """Return build/NAME, which holds the packages of requirements/NAME.txt, installed now if they changed."""
    folder, requirements = ROOT / "build" / name, ROOT / "requirements" / f"{name}.txt"
    text, done = requirements.read_text(encoding="utf-8"), folder / "installed.txt"
    if not done.is_file() or done.read_text(encoding="utf-8") != text:
        shutil.rmtree(folder, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--target", str(folder)]
        subprocess.run([*pip, "-r", str(requirements)], check=True)
        done.write_text(text, encoding="utf-8")
    return folder


def path(folder: Path) -> str:
    """Return the PYTHONPATH of a process with the packages of `folder`."""
    return os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])
