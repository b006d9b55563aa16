"""What a running node's counters say now: plain numbers, taken in the loop, to be made into text elsewhere.

Most are read in one go. What walks over all partitions or groups does it in slices and lets the loop turn in between,
so that a scrape is not felt by clients; the numbers of two topics may therefore be a few turns apart. Those that are
compared, a group's progress and the high watermark it lags behind, are of one moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from halfmoon import __version__
from halfmoon.hooks.errors import PluginErrors
from halfmoon.hooks.guard import Guard
from halfmoon.server.build import build
from halfmoon.server.catalogue import OF_GROUPS
from halfmoon.server.progress_readings import Slices, read_groups, topics, traffic
from halfmoon.server.reading_types import Histogram, Readings
from halfmoon.server.running import Part
from halfmoon.services.groups.service import GroupService

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.server import Server as KafkaServer
    from halfmoon.adapters.rocketmq.server import Server as RocketmqServer
    from halfmoon.adapters.tcp.access import Access
    from halfmoon.adapters.tcp.counters import Counters
    from halfmoon.adapters.tcp.turns import Turns
    from halfmoon.config.settings import Settings
    from halfmoon.config.units import Address
    from halfmoon.core.kernel import Kernel
    from halfmoon.core.metrics import Metrics
    from halfmoon.server.access_tokens import AccessTokens
    from halfmoon.server.auditing import Auditing
    from halfmoon.server.loop_lag import LoopLag
    from halfmoon.server.plugin_host import Host
    from halfmoon.server.services import Services
    from halfmoon.server.tls_files import TlsFiles


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
    """What is read: a process that runs (app.App, or workers.worker.Worker), with its admin port."""

    settings: Settings
    loop_lag: LoopLag
    turns: Turns
    kafka: KafkaServer
    services: Services
    tls_files: TlsFiles
    access_tokens: AccessTokens | None
    access: Access | None
    auditing: Auditing | None
    more_metrics: Metrics | None

    @property
    def kafka_address(self) -> Address | None: ...

    @property
    def plugin_host(self) -> Host: ...

    @property
    def parts(self) -> Sequence[Part]:
        """One at least."""

    @property
    def rocketmqs(self) -> Sequence[RocketmqServer]:
        """Where RocketMQ is on, a server for each part."""

    @property
    def plugins(self) -> ReadPlugins: ...

    @property
    def http(self) -> AdminPort: ...

    def health(self) -> list[str]:
        """What is wrong, a sentence each; empty when nothing is."""

    def warnings(self) -> list[str]:
        """What somebody should know although everything works, a sentence each."""


async def take(app: App) -> Readings:
    """Read everything. Call it in the loop."""
    readings = Readings()
    parts = app.parts
    kernel = parts[0].node.kernel
    _read_process(app, kernel, readings)
    _read_requests(app, kernel, readings)
    _read_plugins(app, readings)
    readings.families += kernel.features.families
    if app.more_metrics is not None:
        readings.families += app.more_metrics.families
        app.more_metrics.read(readings.put)
    for part in parts:
        _read_part(part, readings)
    if len(parts) > 1:
        _put_together(readings)
    slices = Slices()
    catalogs = [part.node.kernel.catalog for part in parts]
    readings.traffic = traffic(catalogs)
    readings.topics = await topics(catalogs, slices)
    readings.put("halfmoon_topics", len(readings.topics))
    readings.put(
        "halfmoon_partitions", sum(len(topic.offsets) - topic.offsets.count(None) for topic in readings.topics)
    )
    if parts[0].node.services.find(GroupService) is None:
        for families in (readings.families, readings.wide):
            families[:] = [family for family in families if not family.name.startswith(OF_GROUPS)]
    else:
        await read_groups([part.node for part in parts], readings, slices)
    return readings


def _read_process(app: App, kernel: Kernel, readings: Readings) -> None:
    put = readings.put
    problems = app.health()
    node_id = str(kernel.node_id)
    put("halfmoon_info", 1, __version__, build(), kernel.cluster_id, node_id)
    put("halfmoon_healthy", not problems)
    put("halfmoon_health_problems", len(problems))
    put("halfmoon_health_warnings", len(app.warnings()))
    put("kafka_brokers", 1 + len(kernel.owners.others()))
    address = app.settings.listeners.kafka.advertise or app.kafka_address
    put("kafka_broker_info", 1, node_id, str(address))
    put("halfmoon_disk_free_bytes", kernel.fs.free_bytes())
    put("halfmoon_fetch_buffer_bytes", kernel.fetch_buffers.in_use_bytes)
    put("halfmoon_fetch_buffer_waits_total", kernel.fetch_buffers.waited)
    readings.put_histogram("halfmoon_loop_lag_seconds", app.loop_lag.durations)
    for cause, longest in app.turns.longest().items():
        put("halfmoon_loop_longest_turn_cpu_seconds", longest.cpu_s, cause)
        put("halfmoon_loop_longest_turn_seconds", longest.wall_s, cause)


def _read_part(part: Part, readings: Readings) -> None:
    kernel = part.node.kernel
    readings.put("halfmoon_generation", kernel.generation)
    readings.put_histogram("halfmoon_flush_seconds", part.ticker.flush_durations)
    readings.put_histogram("halfmoon_tick_seconds", part.ticker.tick_durations)
    _read_log(kernel, readings)
    for read in kernel.features.read_metrics:
        read(readings.put)


_NOT_SUMMED = (
    "halfmoon_generation",
    "halfmoon_disk_low",
    "halfmoon_scrubber_last_pass_timestamp_seconds",
    "halfmoon_transaction_oldest_seconds",
    "halfmoon_delivery_late_seconds",
)
"""Of several parts the largest counts."""


def _put_together(readings: Readings) -> None:
    """One number for all parts, in place of one for each."""
    for name, samples in readings.samples.items():
        found: dict[tuple[str, ...], float] = {}
        for labels, value in samples:
            known = found.get(labels)
            if known is None:
                found[labels] = value
            else:
                found[labels] = max(known, value) if name in _NOT_SUMMED else known + value
        samples[:] = found.items()
    for histograms in readings.histograms.values():
        kept: dict[tuple[str, ...], Histogram] = {}
        for labels, each in histograms:
            before = kept.get(labels)
            kept[labels] = each if before is None else before.plus(each)
        histograms[:] = kept.items()


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
    put("halfmoon_disk_low", log.low_disk)
    put("halfmoon_cold_reads_total", kernel.reader.cold_reads)
    put("halfmoon_start_offset_moves_total", kernel.housekeeping.start_offset_moves)
    for fault, count in kernel.refused_batches.items():
        put("halfmoon_refused_batches_total", count, fault.name)


def _read_requests(app: App, kernel: Kernel, readings: Readings) -> None:
    put = readings.put
    hold = kernel.hold
    put("halfmoon_held_requests", len(hold))
    put("halfmoon_holds_total", hold.counters.parked)
    put("halfmoon_holds_ended_total", hold.counters.woken_by_arrival, "arrival")
    put("halfmoon_holds_ended_total", hold.counters.woken_by_deadline, "deadline")
    put("halfmoon_holds_ended_total", hold.counters.woken_by_check, "check")
    put("halfmoon_holds_ended_total", hold.counters.dropped, "client-gone")
    names = {route.key: route.name for route in app.kafka.routes.values()}
    _read_listener("kafka", app.kafka.counters, names, readings)
    for server in app.rocketmqs:
        _read_rocketmq(server, readings)
    http = app.http.counters
    put("halfmoon_malformed_requests_total", http.malformed, "http")
    put("halfmoon_connections", http.connections, "http")
    put("halfmoon_connections_accepted_total", http.accepted, "http")
    put("halfmoon_connections_refused_total", http.refused, "http")
    put("halfmoon_unauthenticated_connections", len(app.kafka.newcomers), "kafka")
    for server in app.rocketmqs:
        put("halfmoon_unauthenticated_connections", len(server.newcomers), "rocketmq")
    app.tls_files.read(put)
    if app.access_tokens is not None:
        app.access_tokens.metrics(put)
    put("halfmoon_acls", len(app.parts[0].node.state.acls.rules))
    if app.access is not None:
        put("halfmoon_authorizations_total", app.access.denials, "denied")
        if app.access.allowances is not None:
            put("halfmoon_authorizations_total", app.access.allowances, "allowed")
    if app.auditing is not None:
        app.auditing.metrics(put)
    for (listener, mechanism, result), count in app.kafka.authentications.items():
        put("halfmoon_authentications_total", count, listener, mechanism, result)
    for server in app.rocketmqs:
        for result, count in {} if server.signatures is None else server.signatures.results.items():
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
    put("halfmoon_rocketmq_filter_errors_total", node.windows.filter_errors)
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
