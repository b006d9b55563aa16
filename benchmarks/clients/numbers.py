"""Percentiles."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Of sorted figures, by the nearest rank; 0 for none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))] if ordered else 0.0


def summary(took_ms: Sequence[float], prefix: str = "") -> dict[str, float]:
    """p50, p99 and p99.9 in ms."""
    ordered = sorted(took_ms)
    named = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    return {prefix + name: percentile(ordered, fraction) for name, fraction in named.items()}
