"""A plugin with every hook there is. What it hears it tells by an API of its own (key 31001)."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import Any

from halfmoon.plugin import (
    BrokerError,
    Complete,
    ConfigSection,
    Deliver,
    Dispatcher,
    Fault,
    Feature,
    FetchFilter,
    GroupConfig,
    HoldPolicy,
    KafkaApi,
    Observer,
    PutInterceptor,
    Redirect,
    Redirected,
    Relay,
    Section,
    Service,
    TopicConfig,
    TopicConfigKind,
    TopicPolicy,
    hookimpl,
)

api_version = 1

heard: list[str] = []
counts: Counter[str] = Counter()
state: dict[str, dict[str, int]] = {"ends": {}, "records": {}}
context: list[Any] = []


class Settings(Section, frozen=True, kw_only=True):
    greeting: str = "hello"


@hookimpl
def halfmoon_config():
    return ConfigSection(Settings)


def colour(value):
    if value not in ("red", "blue"):
        raise ValueError("expected red or blue")


@hookimpl
def halfmoon_topic_configs():
    return [TopicConfig("every.colour", TopicConfigKind.STRING, lambda settings: "red", colour, "Its colour.", "")]


@hookimpl
def halfmoon_group_configs(ctx):
    def default(settings, group):
        return ctx.settings.greeting

    return [GroupConfig("every.colour", TopicConfigKind.STRING, default, colour, "Its colour.")]


@hookimpl
def halfmoon_features(ctx):
    assert ctx.plugin.settings.greeting == "hi"

    def deleting(topic):
        if topic.name == "kept":
            raise BrokerError(Fault.POLICY_VIOLATION, "it is kept")

    return [
        Feature(
            "every", restore=lambda: heard.append("restore"), start=lambda: heard.append("start"),
            arrived=lambda arrivals: counts.update(arrived=len(arrivals)), topics=TopicPolicy(deleting=deleting),
        )
    ]  # fmt: skip


@hookimpl
def halfmoon_commitlog(ctx):
    def before_put(put):
        if b"REFUSE" in bytes(put.batch):
            raise BrokerError(Fault.POLICY_VIOLATION, "it says so")
        waiting = Redirected("every.waiting", 0, bytes(put.batch), put.now_ms + 50)
        return Redirect(None, (waiting,))

    return [PutInterceptor("every", ("REFUSE", "LATER"), before_put, scheduled_topics=("every.waiting",))]


@hookimpl
def halfmoon_dispatch(ctx):
    def on_batches(batches):
        for batch in batches:
            place = f"{batch.topic}-{batch.partition}"
            state["ends"][place] = batch.end_offset
            state["records"][place] = state["records"].get(place, 0) + batch.record_count

    def restore(saved):
        heard.append("anew" if saved is None else "restored")
        if saved:
            state.update(json.loads(saved))

    return [Dispatcher("every", on_batches, lambda: json.dumps(state).encode(), restore)]


@hookimpl
def halfmoon_hold(ctx):
    def matches(held, partition, arrival):
        return arrival.topic != "pairs" or arrival.end_offset % 2 == 0

    return [HoldPolicy("every", lambda held: counts.update(parked=1), matches, lambda held: counts.update(expired=1))]


@hookimpl
def halfmoon_fetch(ctx):
    def delivers(topic, record):
        if record.value == b"raise":
            raise RuntimeError("no luck")
        return record.value == b"shown"

    return [FetchFilter("every", ("HIDDEN",), delivers)]


@hookimpl
def halfmoon_relays(ctx):
    def decide(message):
        counts["relayed"] += 1
        return Deliver() if message.record.value == b"deliver" else Complete("every.done")

    return [Relay("every", "every.waiting", decide)]


class Begins:
    def __init__(self, expression):
        self._start = expression.encode()
        self.needle = re.compile(re.escape(self._start))

    def match(self, record):
        return (record.value or b"").startswith(self._start)


@hookimpl
def halfmoon_filters(ctx):
    return {"begins": Begins}


@hookimpl
def halfmoon_allocators(ctx):
    def every(members, queues):
        counts["allocated"] += 1
        return {member: list(queues) if member == min(members) else [] for member in members}

    return {"every": every}


@hookimpl
def halfmoon_services(ctx):
    async def run():
        while True:
            counts["beats"] += 1
            await asyncio.sleep(0.01)

    return [Service("every", run)]


@hookimpl
def halfmoon_commands(ctx):
    def greet(name: str) -> None:
        """Say hello."""
        print(f"{ctx.settings.greeting}, {name}")

    return {"greet": greet}


@hookimpl
def halfmoon_observers(ctx):
    def on_fetched(topic, partition, size):
        counts[f"fetched {topic}"] += size
        if topic == "pairs":
            raise RuntimeError("never again")

    return [
        Observer(
            "every",
            on_produced=lambda topic, partition, records, size: counts.update({f"produced {topic}": records}),
            on_refused=lambda topic, partition, fault: counts.update({f"refused {fault.name}": 1}),
        ),
        Observer("fetches", on_fetched=on_fetched),
    ]


@hookimpl
def halfmoon_authorize(principal, operation, resource_type, resource):
    assert principal == "User:ANONYMOUS"
    return False if resource.startswith("secret") and (operation, resource_type) != ("create", "topic") else None


@hookimpl
def halfmoon_kafka_apis(ctx):
    def tell(request):
        if bytes(request.body) == b"fail":
            raise RuntimeError("no luck")
        offsets = {
            f"{topic}-{index}": ctx.offsets(topic, index)
            for topic in ctx.topics()
            for index in range(ctx.partitions(topic))
        }
        told = {"heard": heard, "counts": counts, "offsets": offsets, **state}
        return json.dumps(told).encode()

    return [KafkaApi(31_001, "Every", 0, 0, tell), KafkaApi(31_002, "Hidden", 0, 0, tell, own=True)]


@hookimpl
def halfmoon_topic_changed(topic, change):
    heard.append(f"{topic} {change}")


@hookimpl
def halfmoon_started(ctx):
    heard.append("started")
    (ctx.state_dir / "started").write_text("yes")


@hookimpl
def halfmoon_stopping(ctx):
    (ctx.state_dir / "stopped").write_text("yes")
