"""The whole path of a model in one call: check, export, simplify, compile, inspect, compare, measure, report.

Each step is a command of opforge, run in a process of its own; its JSON and what it writes are kept in one folder.
"""

from __future__ import annotations

from opforge.pipeline._commands import FAULTS, Ended, run_command
from opforge.pipeline._record import RECORD
from opforge.pipeline._run import Pipeline, StepResult, run
from opforge.pipeline._steps import STEPS, Settings, Step

__all__ = ["FAULTS", "RECORD", "STEPS", "Ended", "Pipeline", "Settings", "Step", "StepResult", "run", "run_command"]
