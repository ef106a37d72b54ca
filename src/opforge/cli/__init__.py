"""The command line: ``opforge COMMAND``. A command is a file in ``cli/commands``; it joins by existing."""

from __future__ import annotations

from opforge.cli._app import main

__all__ = ["main"]
