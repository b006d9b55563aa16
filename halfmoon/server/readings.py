"""What a running node's counters say now: plain numbers, taken in the loop, to be made into text elsewhere.

Most are read in one go. What walks over all partitions or groups does it in slices and lets the loop turn in between,
so that a scrape is not felt by clients; the numbers of two topics may therefore be a few turns apart. Those that are
compared, a group's progress and the high watermark it lags behind, are of one moment.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct, field

from halfmoon import __version__
from halfmoon.core.metrics import Family
from halfmoon.hooks.errors import PluginErrors
from halfmoon.hooks.guard import Guard
from halfmoon.server.build import build
from halfmoon.server.catalogue import NARROW, OF_GROUPS, WIDE
from halfmoon.services.groups.names import GroupListing
from halfmoon.services.groups.service import GroupService

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.server import Server as KafkaServer
    from halfmoon.adapters.rocketmq.server import Server as RocketmqServer
    from halfmoon.adapters.tcp.access import Access
    from halfmoon.adapters.tcp.counters import Counters
    from halfmoon.adapters.tcp.turns import Turns
    from halfmoon.config.settings import Settings
    from halfmoon.config.units import Address
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Topic
    from halfmoon.core.durations import Durations
    from halfmoon.core.kernel import Kernel
    from halfmoon.server import assembly
    from halfmoon.server.access_tokens import AccessTokens
    from halfmoon.server.auditing import Auditing
    from halfmoon.server.loop_lag import LoopLag
    from halfmoon.server.plugin_host import Host
    from halfmoon.server.services import Services
    from halfmoon.server.tick import Ticker
    from halfmoon.server.tls_files import TlsFiles

SLICE_S = 0.0005
"""How long a walk keeps the loop before it lets it turn."""
CHUNK = 100
"""Partitions between two looks at the clock."""

OTHER_TOPICS = "(other)"
"""In place of a name, which no topic can have."""

Sample = tuple[tuple[str, ...], float]
"""Label values, in the family's order, and the number."""


class HttpCounts(Protocol):
    """What is counted of the admin port (http.HttpCounters)."""

    connections: int
    accepted: int
    refused: int
    malformed: int


class AdminPort(Protocol):
    """http.HttpServer."""

    @property
    def counters(self) -> HttpCounts: ...
    @property
    def logins(self) -> Mapping[tuple[str, str], int]:
        """By mechanism, and `ok` or `failed`."""


class ReadPlugins(Protocol):
    """hooks.Plugins."""

    @property
    def errors(self) -> PluginErrors: ...
    @property
    def guard(self) -> Guard: ...


class App(Protocol):
    """What is read: a node that runs (app.App), with its admin port."""

    settings: Settings
    node: assembly.Node
    ticker: Ticker
    loop_lag: LoopLag
    turns: Turns
    kafka: KafkaServer
    kafka_address: Address | None
    rocketmq: RocketmqServer | None
    plugin_host: Host
    services: Services
    tls_files: TlsFiles
    access_tokens: AccessTokens | None
    access: Access | None
    auditing: Auditing | None

    @property
    def plugins(self) -> ReadPlugins: ...

    @property
    def http(self) -> AdminPort: ...

    def health(self) -> list[str]:
        """What is wrong, a sentence each; empty when nothing is."""

    def warnings(self) -> list[str]:
        """What somebody should know although everything works, a sentence each."""


class Histogram(NamedTuple):
    """`counts[i]` durations were at most `bounds_s[i]` and above the bound before; the last is of all longer ones."""

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    total_s: float


class TrafficReading(NamedTuple):
    """Of a topic, or of all that share what counts them (`OTHER_TOPICS`)."""

    topic: str
    in_bytes: int
    in_records: int
    out_bytes: int


class TopicReading(NamedTuple):
    name: str
    offsets: list[tuple[int, int]]
    """Start offset and high watermark, by partition."""
    size_bytes: int


class GroupReading(NamedTuple):
    name: str
    members: int
    progress: list[tuple[str, int, int, int]]
    """Topic, partition, committed offset, high watermark."""


class Readings(Struct):
    """All of a scrape. `samples` and `histograms` are by the names of `families`."""

    families: list[Family] = field(default_factory=lambda: list(NARROW.values()))
    """Those with a handful of series each."""
    wide: list[Family] = field(default_factory=lambda: list(WIDE.values()))
    """Those with a series per topic, partition or group."""
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    histograms: dict[str, list[tuple[tuple[str, ...], Histogram]]] = field(default_factory=dict)
    """With the values of their labels."""
    topics: list[TopicReading] = field(default_factory=list)
    groups: list[GroupReading] = field(default_factory=list)
    traffic: list[TrafficReading] = field(default_factory=list)

    def put(self, name: str, value: float, *labels: str) -> None:
        self.samples.setdefault(name, []).append((labels, value))

    def put_histogram(self, name: str, durations: Durations, *labels: str) -> None:
        histogram = Histogram(durations.bounds_s, tuple(durations.counts), durations.total_s)
        self.histograms.setdefault(name, []).append((labels, histogram))


class _Slices:
    """Says when a walk has kept the loop long enough."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    async def breathe(self) -> None:
        """Let the loop turn, if it is time."""
        if time.perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_S


async def take(app: App) -> Readings:
    """Read everything. Call it in the loop."""
    readings = Readings()
    kernel = app.node.kernel
    _read_node(app, readings)
    _read_log(kernel, readings)
    _read_requests(app, readings)
    _read_plugins(app, readings)
    readings.families += kernel.features.families
    for read in kernel.features.read_metrics:
        read(readings.put)
    slices = _Slices()
    readings.traffic = _traffic(kernel.catalog)
    readings.topics = [await _topic(topic, slices) for topic in list(kernel.catalog.by_number.values())]
    readings.put("halfmoon_topics", len(readings.topics))
    readings.put("halfmoon_partitions", sum(len(topic.offsets) for topic in readings.topics))
    if app.node.services.find(GroupService) is None:
        for families in (readings.families, readings.wide):
            families[:] = [family for family in families if not family.name.startswith(OF_GROUPS)]
    else:
        await _read_groups(app.node, readings, slices)
    return readings


def _read_node(app: App, readings: Readings) -> None:
    kernel, put = app.node.kernel, readings.put
    problems = app.health()
    node_id = str(kernel.node_id)
    put("halfmoon_info", 1, __version__, build(), kernel.cluster_id, node_id)
    put("halfmoon_healthy", not problems)
    put("halfmoon_health_problems", len(problems))
    put("halfmoon_health_warnings", len(app.warnings()))
    put("halfmoon_generation", kernel.generation)
    put("kafka_brokers", 1)
    address = app.settings.listeners.kafka.advertise or app.kafka_address
    put("kafka_broker_info", 1, node_id, str(address))
    readings.put_histogram("halfmoon_flush_seconds", app.ticker.flush_durations)
    readings.put_histogram("halfmoon_tick_seconds", app.ticker.tick_durations)
    readings.put_histogram("halfmoon_loop_lag_seconds", app.loop_lag.durations)
    for cause, longest in app.turns.longest().items():
        put("halfmoon_loop_longest_turn_cpu_seconds", longest.cpu_s, cause)
        put("halfmoon_loop_longest_turn_seconds", longest.wall_s, cause)


def _read_log(kernel: Kernel, readings: Readings) -> None:
    log, put = kernel.log, readings.put
    put("halfmoon_log_start_position", log.start)
    put("halfmoon_log_flushed_position", log.flushed)
    put("halfmoon_log_written_position", log.written)
    put("halfmoon_log_end_position", log.end)
    put("halfmoon_log_gaps", len(kernel.gaps))
    put("halfmoon_log_gap_bytes", sum(high - low for low, high in kernel.gaps))
    put("halfmoon_disk_log_bytes", sum(segment.size for segment in log.segments))
    put("halfmoon_disk_segments", len(log.segments))
    put("halfmoon_disk_compacted_bytes", kernel.clean_files.bytes)
    put("halfmoon_disk_compacted_segments", len(kernel.clean_files))
    put("halfmoon_disk_free_bytes", kernel.fs.free_bytes())
    put("halfmoon_disk_low", log.low_disk)
    put("halfmoon_cold_reads_total", kernel.reader.cold_reads)
    put("halfmoon_fetch_buffer_bytes", kernel.fetch_buffers.in_use_bytes)
    put("halfmoon_fetch_buffer_waits_total", kernel.fetch_buffers.waited)
    put("halfmoon_start_offset_moves_total", kernel.housekeeping.start_offset_moves)
    for fault, count in kernel.refused_batches.items():
        put("halfmoon_refused_batches_total", count, fault.name)


def _read_requests(app: App, readings: Readings) -> None:
    put = readings.put
    hold = app.node.kernel.hold
    put("halfmoon_held_requests", len(hold))
    put("halfmoon_holds_total", hold.counters.parked)
    put("halfmoon_holds_ended_total", hold.counters.woken_by_arrival, "arrival")
    put("halfmoon_holds_ended_total", hold.counters.woken_by_deadline, "deadline")
    put("halfmoon_holds_ended_total", hold.counters.woken_by_check, "check")
    put("halfmoon_holds_ended_total", hold.counters.dropped, "client-gone")
    names = {route.key: route.name for route in app.kafka.routes.values()}
    _read_listener("kafka", app.kafka.counters, names, readings)
    if app.rocketmq is not None:
        _read_rocketmq(app.rocketmq, readings)
    http = app.http.counters
    put("halfmoon_malformed_requests_total", http.malformed, "http")
    put("halfmoon_connections", http.connections, "http")
    put("halfmoon_connections_accepted_total", http.accepted, "http")
    put("halfmoon_connections_refused_total", http.refused, "http")
    put("halfmoon_unauthenticated_connections", len(app.kafka.newcomers), "kafka")
    if app.rocketmq is not None:
        put("halfmoon_unauthenticated_connections", len(app.rocketmq.newcomers), "rocketmq")
    app.tls_files.read(put)
    if app.access_tokens is not None:
        app.access_tokens.metrics(put)
    put("halfmoon_acls", len(app.node.state.acls.rules))
    if app.access is not None:
        put("halfmoon_authorizations_total", app.access.denials, "denied")
        if app.access.allowances is not None:
            put("halfmoon_authorizations_total", app.access.allowances, "allowed")
    if app.auditing is not None:
        app.auditing.metrics(put)
    for (listener, mechanism, result), count in app.kafka.authentications.items():
        put("halfmoon_authentications_total", count, listener, mechanism, result)
    if app.rocketmq is not None and app.rocketmq.signatures is not None:
        for result, count in app.rocketmq.signatures.results.items():
            put("halfmoon_authentications_total", count, "rocketmq", "SIGNATURE", result)
    for (mechanism, result), count in app.http.logins.items():
        put("halfmoon_authentications_total", count, "http", mechanism, result)


def _read_listener(listener: str, counters: Counters, names: Mapping[int, str], readings: Readings) -> None:
    put = readings.put
    for key, requests in counters.requests.items():
        if requests.count:
            name = names.get(key, str(key))
            put("halfmoon_requests_total", requests.count, listener, name)
            readings.put_histogram("halfmoon_request_seconds", requests.durations, listener, name)
    put("halfmoon_request_errors_total", counters.errors, listener)
    put("halfmoon_malformed_requests_total", counters.malformed, listener)
    put("halfmoon_connections", counters.connections, listener)
    put("halfmoon_connections_accepted_total", counters.accepted, listener)
    put("halfmoon_connections_refused_total", counters.refused, listener)
    put("halfmoon_connections_idle_closed_total", counters.idle_closed, listener)
    put("halfmoon_received_bytes_total", counters.bytes_in, listener)
    put("halfmoon_sent_bytes_total", counters.bytes_out, listener)


def _read_rocketmq(server: RocketmqServer, readings: Readings) -> None:
    put = readings.put
    _read_listener("rocketmq", server.counters, {code: each.name for code, each in server.requests.items()}, readings)
    node = server.node
    put("halfmoon_rocketmq_messages_out_total", node.messages_out)
    put("halfmoon_rocketmq_check_backs_total", node.checks.asked)
    put("halfmoon_rocketmq_locked_queues", node.locks.held(server.mono_ms()))
    for group, members in node.members.producer_groups().items():
        put("halfmoon_rocketmq_members", len(members), group, "producer")
    for name, consumers in node.members.consumers.items():
        put("halfmoon_rocketmq_members", len(consumers.members), name, "consumer")
    for conflict, count in node.members.conflicts.items():
        put("halfmoon_rocketmq_subscription_conflicts_total", count, *conflict)


def _read_plugins(app: App, readings: Readings) -> None:
    for (plugin, name), count in app.plugin_host.counts.items():
        readings.put("halfmoon_plugin_total", count, plugin, name)
    for (plugin, hook), count in app.plugins.errors.counts.items():
        readings.put("halfmoon_plugin_errors_total", count, plugin, hook)
    for (plugin, hook), count in app.plugins.guard.slow.items():
        readings.put("halfmoon_plugin_slow_calls_total", count, plugin, hook)
    for service, failures in app.services.failures.items():
        readings.put("halfmoon_service_failures_total", failures, service)


def _traffic(catalog: Catalog) -> list[TrafficReading]:
    """Of topics that had any, a line each while there are few, and one for all others."""
    others = catalog.traffic.others
    found = [
        TrafficReading(topic.name, traffic.in_bytes, traffic.in_records, traffic.out_bytes)
        for topic in catalog.by_number.values()
        if (traffic := topic.traffic) is not None and traffic is not others
    ]
    return [*found, TrafficReading(OTHER_TOPICS, others.in_bytes, others.in_records, others.out_bytes)]


async def _topic(topic: Topic, slices: _Slices) -> TopicReading:
    offsets: list[tuple[int, int]] = []
    size_bytes = 0
    for first in range(0, len(topic.partitions), CHUNK):
        chunk = topic.partitions[first : first + CHUNK]
        offsets += [(partition.start_offset, partition.high_watermark) for partition in chunk]
        size_bytes += sum([partition.size_bytes for partition in chunk])
        await slices.breathe()
    return TopicReading(topic.name, offsets, size_bytes)


async def _read_groups(node: assembly.Node, readings: Readings, slices: _Slices) -> None:
    states: Counter[str] = Counter()
    for listed in (await _groups(node, slices)).values():
        states[listed.state] += 1
        described = node.groups.describe(listed.group)
        if described is not None:  # it may have gone while the loop turned
            progress = await _progress(node, listed.group, slices)
            readings.groups.append(GroupReading(listed.group, len(described.members), progress))
        await slices.breathe()
    for state, count in states.items():
        readings.put("halfmoon_groups", count, state)


async def _groups(node: assembly.Node, slices: _Slices) -> dict[str, GroupListing]:
    looking = node.group_names.found_slices()
    while True:
        try:
            next(looking)
        except StopIteration as done:
            found: dict[str, GroupListing] = done.value
            return found
        await slices.breathe()


async def _progress(node: assembly.Node, group: str, slices: _Slices) -> list[tuple[str, int, int, int]]:
    catalog = node.kernel.catalog
    found = []
    offsets = node.state.groups.offsets
    for count, place in enumerate(list(offsets.get(group, ())), 1):
        partition = catalog.partition(*place)
        committed = offsets.get(group, {}).get(place)
        if partition is not None and committed is not None:
            found.append((partition.topic.name, place[1], committed.offset, partition.high_watermark))
        if count % CHUNK == 0:
            await slices.breathe()
    return found
