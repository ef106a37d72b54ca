"""Metrics over HTTP for Prometheus to fetch, and as a collector of ``prometheus_client``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opforge.errors import ArgumentError
from opforge.monitor._metrics import CONTENT_TYPE, Family
from opforge.monitor._watch import Monitor, families, metrics_text

__all__ = ["Collector", "Server", "serve"]


class _Handler(BaseHTTPRequestHandler):
    server: _Metrics

    def do_GET(self) -> None:
        """Answer /metrics; nothing else is there."""
        found = self.path.partition("?")[0] == "/metrics"
        body = metrics_text(*self.server.monitors).encode() if found else b"metrics are at /metrics\n"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: what is fetched every few seconds is no news."""


class _Metrics(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], monitors: tuple[Monitor, ...]) -> None:
        super().__init__(address, _Handler)
        self.monitors = monitors


class Server:
    """Serves ``/metrics`` until it is closed."""

    def __init__(self, host: str, port: int, monitors: tuple[Monitor, ...]) -> None:
        """Use ``serve``."""
        self._server = _Metrics((host, port), monitors)
        self._thread = threading.Thread(target=self._server.serve_forever, name="opforge-metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def close(self) -> None:
        """End it, and wait until it has ended."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(*monitors: Monitor, port: int = 0, host: str = "127.0.0.1") -> Server:
    """Serve the metrics of these monitors, or of all in this process.

    Args:
        monitors: none = whatever is watched when somebody asks.
        port: 0 = a free one, which ``url`` tells.
        host: the loopback by default, which only this machine reaches. Metrics name models and operators; whoever
            opens another address lets who reaches it read them.

    Raises:
        ArgumentError: the address cannot be used.
    """
    try:
        return Server(host, port, monitors)
    except OSError as problem:
        raise ArgumentError(
            "metrics cannot be served there",
            where=f"{host}:{port}",
            expected="an address of this machine and a free port",
            got=problem.strerror,
            hint="port 0 takes a free one",
        ) from problem


class Collector:
    """For ``prometheus_client``: ``REGISTRY.register(Collector())`` adds the metrics to those of the program."""

    def __init__(self, *monitors: Monitor) -> None:
        """Collect of these monitors; without any, of all in this process.

        Raises:
            ModuleNotFoundError: ``prometheus_client`` is not installed.
        """
        try:
            from prometheus_client import core
        except ModuleNotFoundError as error:
            message = "opforge.monitor.Collector needs prometheus_client: pip install 'opforge[monitor]'"
            raise ModuleNotFoundError(message, name=error.name) from None
        self._made = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        self._monitors = monitors

    def collect(self) -> Iterator[Any]:
        """Yield the metrics as ``prometheus_client`` has them."""
        for family in families(*self._monitors):
            metric = family.metric
            names = ("model", "process", *metric.labels)
            made: Any = self._made[metric.kind](metric.name, metric.help, labels=names)
            if metric.kind == "histogram":
                _add_histograms(made, family, names)
            else:
                for sample in family.samples:
                    made.add_metric([sample.labels[name] for name in names], sample.value)
            yield made


def _add_histograms(made: Any, family: Family, names: Sequence[str]) -> None:  # noqa: ANN401 - of prometheus_client
    buckets: list[tuple[str, float]] = []
    total = 0.0
    for sample in family.samples:  # of each session: its buckets, then sum and count
        if sample.suffix == "_bucket":
            buckets.append((sample.labels["le"], sample.value))
        elif sample.suffix == "_sum":
            total = sample.value
        else:
            made.add_metric([sample.labels[name] for name in names], buckets, total)
            buckets = []
