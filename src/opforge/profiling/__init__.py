"""Where a model's time goes: per node and operator, against the machine's roofs, in one engine or side by side."""

from opforge.profiling._advice import RULES, Advice, Rule
from opforge.profiling._compare import Group, side_by_side
from opforge.profiling._flame import flame
from opforge.profiling._machine import Machine, machine
from opforge.profiling._profile import profile
from opforge.profiling._roofline import roofline
from opforge.profiling._rows import NodeRow, OperatorRow, Profile
from opforge.profiling._trace import chrome_trace, collapsed_stacks

__all__ = [
    "RULES",
    "Advice",
    "Group",
    "Machine",
    "NodeRow",
    "OperatorRow",
    "Profile",
    "Rule",
    "chrome_trace",
    "collapsed_stacks",
    "flame",
    "machine",
    "profile",
    "roofline",
    "side_by_side",
]
