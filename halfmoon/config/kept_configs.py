"""Configurations of Kafka's that are kept and shown, and that nothing here acts on.

They tune what this broker does not have: a log per partition, replicas, tiered storage, pools of threads, Kerberos.
Tools set them, copy them from cluster to cluster, and compare them afterwards; a refusal ends their work, and nobody
who reads or writes records notices whether they are obeyed. So each takes the values that Kafka takes, and the
documentation that DescribeConfigs gives begins with NO_EFFECT.

Names, types, defaults, ranges and synonyms are those of Kafka 4.3 (org.apache.kafka.storage.internals.log.LogConfig,
ServerTopicConfigSynonyms, DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS). Why `compression.type` is among them: decision
0120.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from halfmoon.config.values import INT_MAX, LONG_MAX, LONG_MIN, Kind, always, boolean, integer, number, one_of, stated

NO_EFFECT = "No effect here"
"""How the documentation of such a configuration begins."""

ONE_LOG = "all topics share one commitlog; see the section log of broker.yaml"
NO_TIERS = "there is no tiered storage"
AS_SENT = "batches stay as their producers compressed them"
NO_REPLICAS = "nothing is replicated between nodes"
ONE_LOOP = "one event loop serves all requests"
ONE_CLEANER = "see the section log.cleaner of broker.yaml"
NO_KERBEROS = "there is no Kerberos"


def without_effect(why: str) -> str:
    """The documentation of a configuration without effect."""
    return f"{NO_EFFECT}: {why}."


class Kept(NamedTuple):
    """One such configuration."""

    name: str
    kind: Kind
    default: Callable[[object], str]
    check: Callable[[str], object]
    """Raises ValueError that says what is expected."""
    why: str
    """The reason that it has no effect."""
    node_name: str = ""
    """Of a topic's: what the node-wide default is called. Empty: there is none."""


def _gzip_level(value: str) -> int:
    level = integer(-1, 9)(value)
    if level == 0:
        raise ValueError("expected an integer from 1 to 9, or -1")
    return level


_REPLICAS = re.compile(r"\s*[0-9]+\s*:\s*[0-9]+\s*(,\s*[0-9]+\s*:\s*[0-9]+\s*)*,*\Z")


def _replicas(value: str) -> str:
    if value not in ("", "*") and not _REPLICAS.match(value):
        raise ValueError("expected *, or PARTITION:BROKER, more of them with a comma")
    return value


def _no_tiers(value: str) -> bool:
    """Kafka refuses it, too, where tiered storage is not set up: the records would be promised a place elsewhere."""
    if boolean(value):
        raise ValueError(f"only false is supported: {NO_TIERS}")
    return False


_long_or_more = integer(-2, LONG_MAX)

KEPT_OF_TOPICS: tuple[Kept, ...] = (
    Kept("compression.gzip.level", Kind.INT, always(-1), _gzip_level, AS_SENT, "compression.gzip.level"),
    Kept("compression.lz4.level", Kind.INT, always(9), integer(1, 17), AS_SENT, "compression.lz4.level"),
    Kept(
        "compression.type", Kind.STRING, always("producer"),
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), AS_SENT, "compression.type",
    ),
    Kept("compression.zstd.level", Kind.INT, always(3), integer(-131072, 22), AS_SENT, "compression.zstd.level"),
    Kept(
        "file.delete.delay.ms", Kind.LONG, always(60_000), integer(0, LONG_MAX), ONE_LOG, "log.segment.delete.delay.ms"
    ),
    Kept(
        "flush.messages", Kind.LONG, always(LONG_MAX), integer(1, LONG_MAX), ONE_LOG, "log.flush.interval.messages"
    ),
    Kept("flush.ms", Kind.LONG, always(LONG_MAX), integer(0, LONG_MAX), ONE_LOG, "log.flush.interval.ms"),
    Kept("follower.replication.throttled.replicas", Kind.LIST, always(""), _replicas, NO_REPLICAS),
    Kept("index.interval.bytes", Kind.INT, always(4096), integer(0, INT_MAX), ONE_LOG, "log.index.interval.bytes"),
    Kept("leader.replication.throttled.replicas", Kind.LIST, always(""), _replicas, NO_REPLICAS),
    Kept("local.retention.bytes", Kind.LONG, always(-2), _long_or_more, NO_TIERS, "log.local.retention.bytes"),
    Kept("local.retention.ms", Kind.LONG, always(-2), _long_or_more, NO_TIERS, "log.local.retention.ms"),
    Kept("preallocate", Kind.BOOLEAN, always("false"), boolean, ONE_LOG, "log.preallocate"),
    Kept("remote.log.copy.disable", Kind.BOOLEAN, always("false"), boolean, NO_TIERS),
    Kept("remote.log.delete.on.disable", Kind.BOOLEAN, always("false"), boolean, NO_TIERS),
    Kept("remote.storage.enable", Kind.BOOLEAN, always("false"), _no_tiers, NO_TIERS),
    Kept(
        "segment.bytes", Kind.INT, stated("log.segment_bytes"), integer(1 << 20, INT_MAX), ONE_LOG,
        "log.segment.bytes",
    ),
    Kept(
        "segment.index.bytes", Kind.INT, always(10 << 20), integer(4, INT_MAX), ONE_LOG, "log.index.size.max.bytes"
    ),
    Kept("segment.jitter.ms", Kind.LONG, always(0), integer(0, LONG_MAX), ONE_LOG, "log.roll.jitter.ms"),
    Kept("segment.ms", Kind.LONG, always(604_800_000), integer(1, LONG_MAX), ONE_LOG, "log.roll.ms"),
    Kept(
        "unclean.leader.election.enable", Kind.BOOLEAN, always("false"), boolean, NO_REPLICAS,
        "unclean.leader.election.enable",
    ),
)  # fmt: skip

_threads = integer(1, INT_MAX)
_rate = integer(0, LONG_MAX)

KEPT_OF_NODES: tuple[Kept, ...] = (
    Kept("background.threads", Kind.INT, always(10), _threads, ONE_LOOP),
    Kept("follower.fetch.last.tiered.offset.enable", Kind.BOOLEAN, always("false"), boolean, NO_TIERS),
    Kept("follower.replication.throttled.rate", Kind.LONG, always(LONG_MAX), _rate, NO_REPLICAS),
    Kept(
        "group.coordinator.cached.buffer.max.bytes", Kind.INT, always(1_048_588), integer(512 << 10, INT_MAX), ONE_LOG
    ),
    Kept("leader.replication.throttled.rate", Kind.LONG, always(LONG_MAX), _rate, NO_REPLICAS),
    Kept("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, always(0.9), number, ONE_CLEANER),
    Kept("log.cleaner.io.buffer.size", Kind.INT, always(524_288), integer(0, INT_MAX), ONE_CLEANER),
    Kept("log.cleaner.threads", Kind.INT, always(1), integer(0, INT_MAX), ONE_CLEANER),
    Kept("num.io.threads", Kind.INT, always(8), _threads, ONE_LOOP),
    Kept("num.network.threads", Kind.INT, always(3), _threads, ONE_LOOP),
    Kept("num.recovery.threads.per.data.dir", Kind.INT, always(2), _threads, ONE_LOG),
    Kept("num.replica.fetchers", Kind.INT, always(1), _threads, NO_REPLICAS),
    Kept("remote.fetch.max.wait.ms", Kind.INT, always(500), _threads, NO_TIERS),
    Kept("remote.list.offsets.request.timeout.ms", Kind.LONG, always(30_000), integer(1, LONG_MAX), NO_TIERS),
    Kept("remote.log.index.file.cache.total.size.bytes", Kind.LONG, always(1 << 30), integer(1, LONG_MAX), NO_TIERS),
    Kept("remote.log.manager.copier.thread.pool.size", Kind.INT, always(10), _threads, NO_TIERS),
    Kept("remote.log.manager.copy.max.bytes.per.second", Kind.LONG, always(LONG_MAX), integer(1, LONG_MAX), NO_TIERS),
    Kept("remote.log.manager.expiration.thread.pool.size", Kind.INT, always(10), _threads, NO_TIERS),
    Kept("remote.log.manager.fetch.max.bytes.per.second", Kind.LONG, always(LONG_MAX), integer(1, LONG_MAX), NO_TIERS),
    Kept("remote.log.manager.follower.thread.pool.size", Kind.INT, always(2), _threads, NO_TIERS),
    Kept("remote.log.reader.threads", Kind.INT, always(10), _threads, NO_TIERS),
    Kept("replica.alter.log.dirs.io.max.bytes.per.second", Kind.LONG, always(LONG_MAX), _rate, NO_REPLICAS),
    Kept("sasl.kerberos.kinit.cmd", Kind.STRING, always("/usr/bin/kinit"), str, NO_KERBEROS),
    Kept("sasl.kerberos.min.time.before.relogin", Kind.LONG, always(60_000), integer(LONG_MIN, LONG_MAX), NO_KERBEROS),
    Kept("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, always(0.05), number, NO_KERBEROS),
    Kept("sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, always(0.8), number, NO_KERBEROS),
    Kept(
        "share.coordinator.cached.buffer.max.bytes", Kind.INT, always(1_048_588), integer(512 << 10, INT_MAX), ONE_LOG
    ),
    Kept(
        "transaction.partition.verification.enable", Kind.BOOLEAN, always("true"), boolean,
        "transactional batches are always checked",
    ),
)  # fmt: skip
"""Those that Kafka changes at run time; topics' defaults are not repeated here."""
