"""Inference engines, found by folder: ``engines/NAME/__init__.py`` defines ``engines``, a tuple of one or more."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from opforge.engines._protocol import Array, Availability, Engine, LoadedModel, NodeTime, TensorInfo, Traits

__all__ = ["Array", "Availability", "Engine", "LoadedModel", "NodeTime", "TensorInfo", "Traits", "folder_engines"]


def folder_engines() -> dict[str, Engine]:
    """Return the engines of this package by name; importing them imports no engine's own library."""
    folders = sorted(p.parent.name for p in Path(__file__).parent.glob("*/__init__.py"))
    found = (engine for name in folders for engine in import_module(f"opforge.engines.{name}").engines)
    return {engine.name: engine for engine in found}
