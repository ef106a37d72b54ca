"""Inference engines, found by folder: ``engines/NAME/__init__.py`` defines ``engines``, a tuple of one or more."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from opforge.engines._protocol import (
    Array,
    Availability,
    Engine,
    LoadedModel,
    NodeTime,
    OperatorWriter,
    TensorInfo,
    Traits,
    Writer,
    Written,
)

__all__ = [
    "Array",
    "Availability",
    "Engine",
    "LoadedModel",
    "NodeTime",
    "OperatorWriter",
    "TensorInfo",
    "Traits",
    "Writer",
    "Written",
    "folder_engines",
    "writers",
]


def folder_engines() -> dict[str, Engine]:
    """Return the engines of this package by name; importing them imports no engine's own library."""
    folders = sorted(p.parent.name for p in Path(__file__).parent.glob("*/__init__.py"))
    found = (engine for name in folders for engine in import_module(f"opforge.engines.{name}").engines)
    return {engine.name: engine for engine in found}


def writers() -> dict[str, Writer]:
    """Return the engines that keep models in files of their own, by name."""
    return {name: engine for name, engine in folder_engines().items() if isinstance(engine, Writer)}
