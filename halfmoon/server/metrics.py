"""/metrics: readings in, Prometheus' text out.

    readings.take (in the loop, in slices) → render (in a thread) → bytes

What has a handful of series goes through prometheus-client, with the process's own numbers (memory, CPU, open files)
that it knows how to find. What has a series per partition is written by `series`, fifty times as fast.

What a scrape of 10,000 partitions costs was measured: docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from halfmoon.core.metrics import Family
from halfmoon.server import series
from halfmoon.server.reading_types import Histogram, Readings, Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(readings: Readings) -> bytes:
    """The whole answer to a scrape. Meant for a thread; touches nothing but `readings`, which it empties."""
    # A registry for each scrape: what it collects is this scrape's readings, so two scrapes share nothing.
    registry = CollectorRegistry()
    registry.register(NarrowCollector(readings))
    ProcessCollector(registry=registry)
    text = b"".join([generate_latest(registry), *series.write(readings)])
    series.release(readings)
    return text


class NarrowCollector(Collector):
    """Families with few series, as prometheus-client wants them."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        for family in self._readings.families:
            if family.kind == "histogram":
                yield _histograms(family, self._readings.histograms.get(family.name, []))
                continue
            samples = self._readings.samples.get(family.name, [])
            yield _numbers(family, samples)
            if family.old_name is not None:
                yield _numbers(family._replace(name=family.old_name, meaning=f"Deprecated: {family.name}."), samples)


def _numbers(family: Family, samples: list[Sample]) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.meaning, labels=family.labels)
    for labels, value in samples:
        metric.add_metric(labels, float(value))
    return metric


def _histograms(family: Family, histograms: list[tuple[tuple[str, ...], Histogram]]) -> Metric:
    metric = HistogramMetricFamily(family.name, family.meaning, labels=family.labels)
    for labels, histogram in histograms:
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, histogram.bounds_s), "+Inf"), histogram.counts, strict=True):
            total += count
            buckets.append((bound, total))
        metric.add_metric(labels, buckets, histogram.total_s)
    return metric
