"""Inference engines, found by folder: ``engines/NAME/__init__.py`` defines ``engine``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from opforge.engines._protocol import Array, Availability, Engine, LoadedModel, TensorInfo

__all__ = ["Array", "Availability", "Engine", "LoadedModel", "TensorInfo", "folder_engines"]


def folder_engines() -> dict[str, Engine]:
    """Return the engines of this package by name; importing them imports no engine's own library."""
    names = sorted(p.parent.name for p in Path(__file__).parent.glob("*/__init__.py"))
    return {name: import_module(f"opforge.engines.{name}").engine for name in names}
