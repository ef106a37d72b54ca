"""Hosts that train: one folder per framework, each with the functions of ``_protocol.Framework``."""

from __future__ import annotations

__all__: list[str] = []
