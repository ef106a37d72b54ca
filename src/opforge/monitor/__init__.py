"""Deployed models that are watched: metrics, logs, what they say against a profile, and the way back to profiling."""

from opforge.monitor._dashboard import dashboard
from opforge.monitor._log import Log, logs_of, read_log
from opforge.monitor._metrics import METRICS, Metric
from opforge.monitor._report import Limits, LogReport, OperatorChange, baseline, judge
from opforge.monitor._serve import Collector, Server, serve
from opforge.monitor._watch import Monitor, fingerprint, metrics_text, watch, write_textfile

__all__ = [
    "METRICS",
    "Collector",
    "Limits",
    "Log",
    "LogReport",
    "Metric",
    "Monitor",
    "OperatorChange",
    "Server",
    "baseline",
    "dashboard",
    "fingerprint",
    "judge",
    "logs_of",
    "metrics_text",
    "read_log",
    "serve",
    "watch",
    "write_textfile",
]
