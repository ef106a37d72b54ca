"""What is exposed of watched sessions: a row per metric, and Prometheus' text format.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/ (version 0.0.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opforge.verify.stress import Histogram

__all__ = ["BUCKETS", "CONTENT_TYPE", "METRICS", "Family", "Metric", "Sample", "buckets_of", "merged", "text_of"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = tuple(round(step * 10.0**power, 7) for power in range(-6, 1) for step in (1, 2.5, 5))
"""Upper ends of the latency histogram's buckets in seconds, 1 us to 5 s."""


@dataclass(frozen=True)
class Metric:
    """A metric, and its panel on the dashboard.

    Attributes:
        name: as Prometheus knows it: base units, counters end in ``_total``.
        kind: "counter", "gauge" or "histogram".
        help: one sentence.
        labels: beside ``model`` and ``process``.
        title: of the panel; "" for a metric that another one's panel shows.
        queries: expression and legend of each line; ``$model`` is what the reader chose.
        unit: Grafana's name of the unit.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    title: str = ""
    queries: tuple[tuple[str, str], ...] = ()
    unit: str = "short"


_BY = 'sum by (model, le) (rate(opforge_run_seconds_bucket{model=~"$model"}[$__rate_interval]))'

METRICS: Mapping[str, Metric] = {
    row.name: row
    for row in (
        Metric(
            "opforge_runs_total", "counter", "Runs that ended well.", (), "Runs a second",
            (('sum by (model) (rate(opforge_runs_total{model=~"$model"}[$__rate_interval]))', "{{model}}"),), "reqps",
        ),
        Metric(
            "opforge_errors_total", "counter", "Runs that raised, by the class of the error.", ("type",),
            "Errors a second",
            (('sum by (model, type) (rate(opforge_errors_total{model=~"$model"}[$__rate_interval]))',
              "{{model}} {{type}}"),), "reqps",
        ),
        Metric(
            "opforge_run_seconds", "histogram", "Time of a run as its caller sees it.", (), "Latency",
            tuple((f"histogram_quantile({share}, {_BY})", f"{{{{model}}}} {name}")
                  for share, name in ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"))), "s",
        ),
        Metric(
            "opforge_sampled_runs_total", "counter", "Runs whose operators were timed.", (), "Runs that were profiled",
            (('sum by (model) (rate(opforge_sampled_runs_total{model=~"$model"}[$__rate_interval]))',
              "{{model}}"),), "reqps",
        ),
        Metric(
            "opforge_operator_seconds_total", "counter", "Time in the operators of the profiled runs.", ("operator",),
            "Time of a run by operator",
            (('sum by (model, operator) (rate(opforge_operator_seconds_total{model=~"$model"}[$__rate_interval])) / '
              'on (model) group_left sum by (model) '
              '(rate(opforge_sampled_runs_total{model=~"$model"}[$__rate_interval]))',
              "{{model}} {{operator}}"),), "s",
        ),
        Metric(
            "opforge_arena_bytes", "gauge", "Memory of the plan that was used last.", (), "Arena",
            (('max by (model, process) (opforge_arena_bytes{model=~"$model"})', "{{model}} {{process}}"),), "bytes",
        ),
        Metric(
            "opforge_resident_bytes", "gauge", "Resident memory of the process.", (), "Memory of the process",
            (('max by (model, process) (opforge_resident_bytes{model=~"$model"})', "{{model}} {{process}}"),), "bytes",
        ),
        Metric(
            "opforge_model_info", "gauge", "1 for each watched model; its fingerprint and the version that runs it.",
            ("fingerprint", "version"), "Models",
            (('count by (model, fingerprint, version) (opforge_model_info{model=~"$model"})',
              "{{model}} {{fingerprint}} {{version}}"),),
        ),
    )
}  # fmt: skip
"""Name to metric, in the order of the dashboard."""


@dataclass(frozen=True)
class Sample:
    """A line: what follows the metric's name (``_bucket``, ``_sum``, ``_count``), labels, value."""

    suffix: str
    labels: Mapping[str, str]
    value: float


@dataclass
class Family:
    """A metric with the lines of all that are watched."""

    metric: Metric
    samples: list[Sample] = field(default_factory=list)


def buckets_of(histogram: Histogram, labels: Mapping[str, str]) -> list[Sample]:
    """Make the lines of a histogram of nanoseconds; counts are of values that are not above the bucket's end."""
    ends, counts = list(BUCKETS), [0] * len(BUCKETS)
    place = 0
    for value, count in histogram.steps():
        while place < len(ends) and value > ends[place] * 1e9:
            place += 1
        if place == len(ends):
            break
        counts[place] += count
    found, seen = [], 0
    for end, count in zip(ends, counts, strict=True):
        seen += count
        found.append(Sample("_bucket", {**labels, "le": _number(end)}, seen))
    found.append(Sample("_bucket", {**labels, "le": "+Inf"}, histogram.total))
    found.append(Sample("_sum", labels, histogram.sum / 1e9))
    found.append(Sample("_count", labels, histogram.total))
    return found


def merged(parts: Iterable[Sequence[Family]]) -> list[Family]:
    """Join the families of several sessions: a name may stand only once in a text."""
    found = {name: Family(metric) for name, metric in METRICS.items()}
    for families in parts:
        for family in families:
            found[family.metric.name].samples += family.samples
    return [family for family in found.values() if family.samples]


def text_of(families: Iterable[Family]) -> str:
    """Write families as Prometheus reads them."""
    lines = []
    for family in families:
        metric = family.metric
        lines.append(f"# HELP {metric.name} {_escaped(metric.help, quotes=False)}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for sample in family.samples:
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
            lines.append(f"{metric.name}{sample.suffix}{{{labels}}} {_number(sample.value)}")
    return "\n".join([*lines, ""])


def _escaped(text: str, *, quotes: bool = True) -> str:
    found = text.replace("\\", "\\\\").replace("\n", "\\n")
    return found.replace('"', '\\"') if quotes else found


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
