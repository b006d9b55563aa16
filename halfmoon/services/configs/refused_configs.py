"""Kafka's configurations of nodes that are refused here, with the reason that a refusal gives.

Most need a restart in Kafka, too. The others would promise what is not here: encryption, a limit per address. What
Kafka changes at run time and only tunes something is taken (config/kept_configs.py).

They are known for two ends: a refusal says more than that nobody knows the name, and to delete one is accepted, since
it is never set; tools that describe a whole cluster do that. Those that are taken, or have a setting here, are in
`broker_configs`, which is asked first.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfmoon.config.values import by_name

_NO_REPLICAS = "nothing is replicated between nodes"
_ONE_DIRECTORY = "there is one data directory"
_ONE_LOG = "all topics share one commitlog; see the section log of broker.yaml"
_ONE_LOOP = "one event loop serves all requests"
_IN_YAML = "broker.yaml sets it; a change needs a restart"
_SAME = "use log.retention.ms"

REFUSED_CONFIGS: Mapping[str, str] = by_name({
    _IN_YAML: ("advertised.listeners", "listeners"),
    "broker.yaml sets it, as far as there is something like it (docs/security.md)": (
        "authorizer.class.name", "connection.failed.authentication.delay.ms", "delegation.token.*",
        "listener.security.protocol.map", "principal.builder.class", "sasl.*", "security.*", "ssl.*",
    ),
    _NO_REPLICAS: (
        "auto.leader.rebalance.enable", "broker.heartbeat.interval.ms", "broker.rack", "broker.session.timeout.ms",
        "controlled.shutdown.enable", "controller.*", "early.start.listeners",
        "initial.broker.registration.timeout.ms", "inter.broker.listener.name", "internal.metadata.*", "leader.*",
        "metadata.*", "process.roles", "replica.*", "replication.quota.*",
        "unclean.leader.election.interval.ms",
    ),
    _ONE_DIRECTORY: (
        "alter.log.dirs.*", "cordoned.log.dirs", "log.dir.failure.timeout.ms", "num.replica.alter.log.dirs.threads",
    ),
    _ONE_LOG: (
        "log.flush.*", "log.initial.task.delay.ms", "log.retention.check.interval.ms",
        "log.roll.*",
    ),
    "groups and transactions have their state in the commitlog, not in topics": (
        "group.coordinator.*", "offsets.load.buffer.size", "offsets.topic.*", "share.coordinator.*",
        "transaction.state.log.*",
    ),
    "Halfmoon has no tiered storage": ("remote.*",),
    _ONE_LOOP: ("queued.max.requests",),
    "Kafka's plugins are Java classes; see docs/plugins.md for those of this broker": (
        "alter.config.policy.class.name", "client.quota.callback.class", "config.providers",
        "create.topic.policy.class.name", "group.consumer.assignors", "group.share.assignors",
        "group.share.persister.class.name",
    ),
    "metrics are served to Prometheus (listeners.http in broker.yaml)": (
        "kafka.metrics.*", "metric.reporters", "metrics.*", "telemetry.*",
    ),
    "there are no Streams groups (KIP-1071) here": ("group.streams.*",),
    "use node.id": ("broker.id",),
    "use log.dirs": ("log.dir",),
    _SAME: ("log.retention.hours", "log.retention.minutes"),
    "use the quota connection_creation_rate": ("max.connection.creation.rate",),
    "only max.connections limits connections": ("max.connections.per.ip", "max.connections.per.ip.overrides"),
    "see limits.inflight_bytes of broker.yaml": ("queued.max.request.bytes",),
    "there are no fetch sessions": ("max.incremental.fetch.session.cache.slots",),
    "Halfmoon has no such setting": (
        "add.partitions.to.txn.*", "delete.records.purgatory.*", "fetch.max.bytes", "fetch.purgatory.*",
        "group.consumer.max.*", "group.consumer.min.*", "group.consumer.regex.*", "group.share.initialize.*",
        "group.share.max.*", "group.share.min.*", "max.request.partition.size.limit", "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms", "offsets.retention.check.interval.ms", "producer.id.expiration.*",
        "producer.purgatory.*", "request.timeout.ms", "server.max.startup.time.ms", "share.fetch.purgatory.*",
        "socket.connection.*", "socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes",
        "transaction.abort.*", "transaction.remove.*", "transaction.two.*", "unstable.*",
    ),
})  # fmt: skip
"""The reason, by name; one that ends in * stands for all that begin so."""

_BEGINNINGS = sorted((name[:-1] for name in REFUSED_CONFIGS if name.endswith("*")), key=len, reverse=True)


def why_refused(name: str) -> str | None:
    """None for what Kafka does not have, too."""
    reason = REFUSED_CONFIGS.get(name)
    if reason is None:
        reason = next((REFUSED_CONFIGS[f"{start}*"] for start in _BEGINNINGS if name.startswith(start)), None)
    return reason
