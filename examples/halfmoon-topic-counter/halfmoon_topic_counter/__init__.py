"""Counts the offsets of each topic that are durable, exactly once, also after kill -9: the sum of its end offsets.

In /metrics: halfmoon_plugin_total{plugin="topic_counter", name="TOPIC"}.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from halfmoon.plugin import Batch, Dispatcher, PluginContext, hookimpl

api_version = 1


@hookimpl
def halfmoon_dispatch(ctx: PluginContext) -> list[Dispatcher]:
    counts: Counter[str] = Counter()

    def add(topic: str, offsets: int) -> None:
        counts[topic] += offsets
        ctx.count(topic, offsets)

    def on_batches(batches: Sequence[Batch]) -> None:
        for batch in batches:
            if not batch.internal:
                add(batch.topic, batch.end_offset - batch.base_offset)

    def restore(state: bytes | None) -> None:
        for topic, offsets in json.loads(state or b"{}").items():
            add(topic, offsets)

    return [Dispatcher("topic_counter", on_batches, lambda: json.dumps(counts).encode(), restore)]
