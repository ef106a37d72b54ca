"""The whole path of a model in one call: check, export, simplify, compile, inspect, compare, measure, report.

Each step is a command of opforge, run in a process of its own; its JSON and what it writes are kept in one folder.
"""

from __future__ import annotations

from opforge.pipeline._checklist import CHECKLIST, STAGES, Answer, Item, as_dict, checklist, open_folder
from opforge.pipeline._commands import FAULTS, Common, Ended, option_words, run_command
from opforge.pipeline._record import RECORD
from opforge.pipeline._run import Pipeline, StepResult, run
from opforge.pipeline._steps import STEPS, Settings, Step

__all__ = [
    "CHECKLIST",
    "FAULTS",
    "RECORD",
    "STAGES",
    "STEPS",
    "Answer",
    "Common",
    "Ended",
    "Item",
    "Pipeline",
    "Settings",
    "Step",
    "StepResult",
    "as_dict",
    "checklist",
    "open_folder",
    "option_words",
    "run",
    "run_command",
]
