"""A broker with schedules, in virtual time, on a disk that may fail."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

from halfmoon.config.settings import load_settings
from halfmoon.core.append_types import Sender
from halfmoon.core.records.batches import build_batch
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.schedules import Answer, Asker, Question, Schedules
from halfmoon.plugins.store.schedule.plugin import ScheduleSettings, halfmoon_commitlog, halfmoon_features
from halfmoon.server.plugin_features import context_of
from halfmoon.server.plugin_host import Host
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import LANGUAGES, SEGMENT, VirtualClock, append, partition_of, relay
from tests.core.relay_bench import found

MINUTE_MS = 60_000
MIDNIGHT_MS = 1_767_225_600_000
"""2026-01-01T00:00Z."""


class TwoClocks(VirtualClock):
    """The wall clock may leap; time goes on all the same."""

    leap_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.leap_ms


class Client:
    """Rights of somebody who sends batches."""

    def __init__(self, principal: str = "User:alice", *refused: tuple[str, str]) -> None:
        """`refused`: operation and topic."""
        self.principal = principal
        self.host = "10.0.0.1"
        self.refused = set(refused)

    def allows(self, use: tuple[str, str, str | None]) -> bool:
        return (use[0], use[2]) not in self.refused

    def demands(self, uses: tuple[tuple[str, str, str | None], ...]) -> bool:
        return any(map(self.allows, uses))


def clock_at(now_ms: int = MIDNIGHT_MS) -> TwoClocks:
    clock = TwoClocks()
    clock.now_ms = now_ms
    return clock


def reopen(
    fs: FaultyFileSystem,
    clock: VirtualClock,
    rights: Callable[[str, str], Any] = lambda principal, host: None,
    *,
    on: bool = True,
    off: Collection[str] = (),
    **settings: Any,
) -> BareNode:
    """`off`: services that are. `settings`: of the plugin."""
    small = {"segment_bytes": SEGMENT, "index_checkpoint_bytes": 16 << 10, "low_disk_bytes": 0, "flush": "sync"}
    dice = random.Random(fs.dice.random())
    broker = BareNode(fs, load_settings({"log": small}, {}, {}), clock, dice.randbytes, off=off)
    broker.open()
    ctx = PluginContext("schedule", ScheduleSettings(**settings))
    broker.use(LANGUAGES, halfmoon_commitlog(ctx) if on else ())
    if on:
        host = Host(broker, "unused")
        host.rights = rights
        ctx.attach(host)
        broker.extend(halfmoon_features(context_of(broker, ctx, {})))
    broker.start()
    relay(broker)
    return broker


def put(
    broker: BareNode, topic: str, value: bytes | None = b"v", *, key: bytes | None = None, index: int = 0,
    sender: Sender | None = None, timestamp: int = 0, fields: dict[str, Any] | None = None, **headers: str,
) -> int:  # fmt: skip
    """Send a record; the offset it has, or −1."""
    row = (
        key,
        value,
        timestamp,
        tuple(
            (name.replace("__", ".") if name.startswith("half") else name, text.encode())
            for name, text in headers.items()
        ),
    )
    batch = memoryview(bytearray(build_batch([row], **(fields or {}))))
    if sender is None:
        return append(broker, partition_of(broker, topic, index), batch).base_offset
    return broker.append(partition_of(broker, topic, index), batch, broker.clock.wall_ms(), sender=sender).base_offset  # type: ignore[no-any-return]


def make(broker: BareNode, name: str, cron: str, topic: str = "orders", **more: Any) -> None:
    where = {"SCHEDULE_PARTITION": str(more.get("index", 0))}
    assert put(broker, topic, SCHEDULE_NAME=name, SCHEDULE_CRON=cron, **where, **more) == -1
    relay(broker)


def tell(broker: BareNode, name: str, state: str, topic: str = "orders", **more: Any) -> None:
    where = {"SCHEDULE_PARTITION": str(more.get("index", 0))}
    assert put(broker, topic, SCHEDULE_NAME=name, SCHEDULE_STATE=state, **where, **more) == -1
    relay(broker)


def ask(broker: BareNode, question: Question, client: Client | None = None) -> Answer:
    """Raises BrokerError."""
    rights = client or Client()

    def demands(operation: str, topic: str) -> None:
        if not rights.allows((operation, "topic", topic)):
            raise BrokerError(Fault.TOPIC_AUTHORIZATION_FAILED, f"{operation} {topic}")

    asker = Asker(
        rights.principal, rights.host, lambda operation, topic: rights.allows((operation, "topic", topic)), demands
    )
    answer: Answer = broker.services.get(Schedules).ask(question, asker)
    relay(broker)
    return answer


def times_sent(broker: BareNode, topic: str = "orders", index: int = 0) -> list[str]:
    """Schedules and the times (seconds since MIDNIGHT_MS) of what has come."""
    return [
        f"{(headers['halfmoon.schedule'] or b'').decode()} "
        f"{(int(headers['halfmoon.schedule-time'] or 0) - MIDNIGHT_MS) / 1_000:g}"
        for _, _, _, headers in found(broker, topic, index)
        if "halfmoon.schedule" in headers
    ]


def numbers_sent(broker: BareNode, topic: str = "orders") -> list[int]:
    """The same of one schedule."""
    return [int(each.split()[1]) for each in times_sent(broker, topic)]
