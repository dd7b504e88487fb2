"""Metrics of synchronisation for loggers: TensorBoard, Weights & Biases, Lightning, Prometheus.

    Writer = add_scalar(tag, value, step)                        # torch.utils.tensorboard.SummaryWriter and its like
           | log_metrics(metrics, step)                          # Lightning's loggers
           | log(metrics, step=step)                             # a run of Weights & Biases, and its like
           | a prometheus_client.CollectorRegistry

A step's metrics are written when its first parameter is synchronised again, in the thread of the backward pass, so that
no logger makes a call wait. Counters for Prometheus go up as soon as a call has ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from zenc.errors import Diagnostic, ZencError
from zenc.runtime.call.stats import CallStats

Write: TypeAlias = Callable[[Mapping[str, float], int], object]
"""A function that takes a step's metrics by name, and its number."""


class MetricsLog:
    """A receiver of the statistics of a model's calls."""

    def begins(self, parameters: Sequence[str]) -> None:
        """Note that a call of ``parameters`` is about to be made."""

    def ended(self, parameter: str, call: CallStats) -> None:
        """Take a call that ended well, on the thread that ended it."""

    def flush(self) -> None:
        """Write the rest."""


def log_for(writer: Any, every: int, step: Callable[[], int] | None, prefix: str) -> MetricsLog:
    """Return the log that writes metrics to ``writer``; raises ZencError (``unknown-writer``)."""
    if every < 1:
        message = f"metrics are written every 1st step or fewer, not every {every}th"
        raise ZencError(Diagnostic("unknown-writer", message))
    if callable(getattr(writer, "register", None)) and callable(getattr(writer, "collect", None)):
        return PrometheusLog(writer, prefix)
    return StepLog(_write_to(writer), every, step, prefix)


def _write_to(writer: Any) -> Write:
    if callable(getattr(writer, "add_scalar", None)):

        def add_scalars(metrics: Mapping[str, float], step: int) -> None:
            for name, value in metrics.items():
                writer.add_scalar(name, value, step)

        return add_scalars
    if callable(getattr(writer, "log_metrics", None)):
        return lambda metrics, step: writer.log_metrics(dict(metrics), step)
    if callable(getattr(writer, "log", None)) and not isinstance(writer, logging.Logger | logging.LoggerAdapter):
        return lambda metrics, step: writer.log(dict(metrics), step=step)
    message = f"metrics can't be written to an object of class {type(writer).__name__}"
    help = "give something with add_scalar, log_metrics or log(dict, step=), or a prometheus_client.CollectorRegistry"
    raise ZencError(Diagnostic("unknown-writer", message, help=help))


def metrics_of(call: CallStats) -> dict[str, float]:
    """Return the numbers of a call that are worth a curve: bytes, seconds, shares."""
    units = call.units
    found = {
        "bytes_sent": float(call.bytes_sent),
        "bytes_received": float(call.bytes_received),
        "seconds": call.seconds,
        "density_in": sum(call.counts_in) / units,
        "density_out": sum(call.counts_out) / units,
    }
    if call.loss is not None:
        found["residual_over_gradient"] = call.loss["residual_over_gradient"]
        found["compression_ratio"] = call.loss["compression_ratio"]
    return found if call.waited is None else {**found, "seconds_waiting": sum(call.waited.values())}


class StepLog(MetricsLog):
    """A collector of a step's metrics, which writes every ``every``-th one; ``step`` returns its number, if given."""

    def __init__(self, write: Write, every: int, step: Callable[[], int] | None, prefix: str) -> None:
        self._write, self._every, self._step, self._prefix = write, every, step, prefix
        self._calls: dict[str, CallStats] = {}
        self._begun: set[str] = set()
        """Parameters that had a call in this step."""
        self._steps = self._number = 0
        self._lock = threading.Lock()

    def begins(self, parameters: Sequence[str]) -> None:
        """Begin a call of ``parameters``; begin a new step if one of them had a call in this step."""
        if not self._begun.isdisjoint(parameters):
            self.flush()
        if not self._begun:
            self._number = self._steps if self._step is None else self._step()
        self._begun.update(parameters)

    def ended(self, parameter: str, call: CallStats) -> None:
        """Take the statistics of a call, on the thread that ran it."""
        with self._lock:
            self._calls[parameter] = call

    def flush(self) -> None:
        """Write the collected step, if it is an ``every``-th one, and clear the collection."""
        with self._lock:
            calls, self._calls = self._calls, {}
        self._begun.clear()
        if calls:
            if self._steps % self._every == 0:
                self._write(self._named(calls), self._number)
            self._steps += 1

    def _named(self, calls: Mapping[str, CallStats]) -> dict[str, float]:
        """Return ``prefix/parameter/metric``, and for bytes and seconds ``prefix/metric`` of all together."""
        found: dict[str, float] = {}
        for parameter, call in calls.items():
            for metric, value in metrics_of(call).items():
                found[f"{self._prefix}/{parameter}/{metric}"] = value
                if metric.startswith(("bytes", "seconds")):
                    whole = f"{self._prefix}/{metric}"
                    found[whole] = found.get(whole, 0.0) + value
        return found


class PrometheusLog(MetricsLog):
    """Counters of calls, bytes and seconds, and gauges of densities, by parameter, in a Prometheus registry.

    They know no steps, and are always up to date.
    """

    def __init__(self, registry: Any, prefix: str) -> None:
        try:
            from prometheus_client import Counter, Gauge
        except ImportError as error:
            message = "metrics for Prometheus need prometheus_client, which can't be imported"
            raise ZencError(Diagnostic("unknown-writer", message, help="pip install prometheus-client")) from error
        labels = ["parameter"]
        self._calls = Counter(f"{prefix}_calls", "Synchronisations.", labels, registry=registry)
        self._counters = {
            "bytes_sent": Counter(f"{prefix}_sent_bytes", "Bytes sent by this rank.", labels, registry=registry),
            "bytes_received": Counter(f"{prefix}_received_bytes", "Bytes received.", labels, registry=registry),
            "seconds": Counter(f"{prefix}_seconds", "Seconds of synchronisation.", labels, registry=registry),
            "seconds_waiting": Counter(f"{prefix}_waiting_seconds", "Of these, of waiting.", labels, registry=registry),
        }
        self._gauges = {
            "density_in": Gauge(f"{prefix}_density_in", "Share of units that are held.", labels, registry=registry),
            "density_out": Gauge(f"{prefix}_density_out", "The same of the sum.", labels, registry=registry),
            "residual_over_gradient": Gauge(
                f"{prefix}_residual_over_gradient",
                "Norm of what is kept, over the gradient's.",
                labels,
                registry=registry,
            ),
            "compression_ratio": Gauge(
                f"{prefix}_compression_ratio", "Bytes of a dense sum over those sent.", labels, registry=registry
            ),
        }

    def ended(self, parameter: str, call: CallStats) -> None:
        """Count a call, and show its densities."""
        self._calls.labels(parameter).inc()
        for metric, value in metrics_of(call).items():
            if metric in self._gauges:
                self._gauges[metric].labels(parameter).set(value)
            else:
                self._counters[metric].labels(parameter).inc(value)
