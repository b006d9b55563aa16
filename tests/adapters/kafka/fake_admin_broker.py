"""A broker without a log, for handlers of topics and configurations, and a client's way to call them.

`ask` sends a request through the definition of its message: encoded as a client does, decoded and answered as the
server does, and decoded again as a client does. Changes become durable only when `flush` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from logging import getLogger
from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.protocol import REQUESTS, RESPONSES, decode_request, decode_request_slices, encode_response
from halfmoon.adapters.kafka.registry import ApiTable, Context, Deferred
from halfmoon.adapters.kafka.slicing import settled
from halfmoon.auth.principals import ANONYMOUS
from halfmoon.config.settings import Settings, load_settings
from halfmoon.core.catalog.owners import OtherNode, ThisNode
from halfmoon.core.features import Features
from halfmoon.core.live import Live
from halfmoon.core.steps import finish
from halfmoon.core.topic_names import check_topic_name
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.view.configs import VIEW_CONFIGS
from halfmoon.server.build import build
from halfmoon.server.clock import SystemClock
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.acls.state import AclsState
from halfmoon.services.common.services import Services
from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.configs.client_metrics import ClientMetrics
from halfmoon.services.configs.dynamic import DynamicConfigs
from halfmoon.services.configs.group_configs import GroupConfigs
from halfmoon.services.configs.state import ConfigsState
from halfmoon.services.groups.names import GroupNames
from halfmoon.services.quotas.service import Quotas
from halfmoon.services.quotas.state import QuotasState
from halfmoon.services.topic_configs import topic_configs
from tests.kafka_messages import read


@cache
def _settings(given: tuple[tuple[str, object], ...]) -> Settings:
    return load_settings(None, {}, {path.replace("__", "."): value for path, value in given})


Search = Callable[[], "tuple[int, int] | None"]


@dataclass(slots=True)
class FakePartition:
    topic: FakeTopic = field(repr=False)
    index: int
    start_offset: int = 0
    high_watermark: int = 0
    next_offset: int = 0
    stable_offset: int = 0
    size_bytes: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    by_time: dict[int, Search] = field(default_factory=dict)
    newest: Search | None = None

    def is_remote(self) -> bool:
        return False


@dataclass(slots=True)
class FakeTopic:
    name: str
    id: bytes
    internal: bool = False
    configs: dict[str, str] = field(default_factory=dict)
    partitions: list[FakePartition] = field(default_factory=list)
    number: int = 0
    view: None = None

    @property
    def hidden(self) -> bool:
        return self.internal

    def grow(self, total: int) -> None:
        while len(self.partitions) < total:
            self.partitions.append(FakePartition(self, len(self.partitions)))


class FakeAdminBroker:
    node_id = 7
    cluster_id = "cluster-of-the-test"
    generation = 3

    def __init__(self, off: Collection[str] = (), **settings: object) -> None:
        """`off`: features that do nothing. `settings`: by dotted path with '__' for the dot, as
        `topics__partitions=2`."""
        if build() == "compiled":
            pytest.skip("pure: compiled code takes a Catalog and nothing else")
        self.owners = ThisNode()
        self.owners.node_id, self.owners.epoch = self.node_id, self.generation
        self.live = Live(_settings((*settings.items(), ("node__id", self.node_id))))
        self.by_name: dict[str, FakeTopic] = {}
        self.position = 0
        self.refuse: BrokerError | None = None
        """Raised by every change, as by a log that takes no more writes."""
        self.durable = 0
        self.waiting: list[tuple[int, Callable[[BrokerError | None], None]]] = []
        self.written: list[tuple[Any, ...]] = []
        """Every change made, in order."""
        self.next_producer_id = 1000
        self.topic_configs = topic_configs(off, () if "view" in off else (VIEW_CONFIGS,))
        self.features = Features()
        self.state = SimpleNamespace(configs=ConfigsState(self.topic_configs), quotas=QuotasState(), acls=AclsState())
        log: Any = self
        configs = self.state.configs
        self.group_configs = GroupConfigs(configs, log, self.live)
        self.dynamic_configs = DynamicConfigs(
            configs, log, self.live, BrokerConfigs(self.topic_configs), self.group_configs, getLogger("test")
        )
        self.client_metrics = ClientMetrics(configs, log)
        self.quotas = Quotas(self.state.quotas, log, SystemClock(), self.live)
        self.acls = AccessRules(self.state.acls, log)
        self.services = Services(
            (self.group_configs, self.dynamic_configs, self.client_metrics, self.quotas, self.acls, GroupNames())
        )
        self.catalog = self.administration = self.turn = self
        self.topic_defaults = configs.topic_defaults

    @property
    def settings(self) -> Settings:
        return self.live.current

    @property
    def state_position(self) -> int:
        """Behind the last change."""
        return self.position

    def add(self, name: str, partitions: int = 1, *, internal: bool = False, **configs: str) -> FakeTopic:
        """A topic that was always there."""
        topic = FakeTopic(name, name.encode().ljust(16, b"."), internal)
        topic.configs = {key.replace("_", "."): value for key, value in configs.items()}
        topic.grow(partitions)
        self.by_name[name] = topic
        return topic

    def flush(self, error: BrokerError | None = None) -> None:
        """All that was changed so far is durable, or lost."""
        if error is None:
            self.durable = self.position
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback(error)

    def when_durable(self, position: int, callback: Callable[[BrokerError | None], None]) -> None:
        if position <= self.durable:
            callback(None)
        else:
            self.waiting.append((position, callback))

    def _change(self, *what: object) -> int:
        if self.refuse is not None:
            raise self.refuse
        self.written.append(what)
        self.position += 100
        return self.position

    def append_control(self, record: Any) -> int:
        position = self._change(record)
        self.state.configs.apply(record)
        return position

    def topic(self, name: str) -> FakeTopic | None:
        return self.by_name.get(name)

    def topic_by_id(self, topic_id: bytes) -> FakeTopic | None:
        return next((topic for topic in self.by_name.values() if topic.id == topic_id), None)

    def topics(self) -> list[FakeTopic]:
        return [self.by_name[name] for name in self.names()]

    def names(self) -> list[str]:
        return sorted(self.by_name)

    def create_topic(
        self, name: str, partitions: int = -1, configs: dict[str, str] | None = None, *, validate_only: bool = False
    ) -> tuple[FakeTopic, int]:
        check_topic_name(name)
        count = self.settings.topics.partitions if partitions == -1 else partitions
        if not 1 <= count <= self.settings.limits.max_partitions_per_topic:
            raise BrokerError(Fault.INVALID_PARTITIONS)
        self.topic_configs.validate(configs or {})
        topic = FakeTopic(name, name.encode()[:16].ljust(16, b"."), configs=dict(configs or {}))
        topic.grow(count)
        if validate_only:
            return topic, 0
        position = self._change("create", name, count, configs)
        self.by_name[name] = topic
        return topic, position

    def delete_topic(self, topic: FakeTopic) -> int:
        position = self._change("delete", topic.name)
        del self.by_name[topic.name]
        return position

    def add_partitions(self, topic: FakeTopic, total: int, *, validate_only: bool = False) -> int:
        if validate_only:
            return 0
        position = self._change("grow", topic.name, total)
        topic.grow(total)
        return position

    def alter_configs(self, topic: FakeTopic, configs: dict[str, str], *, validate_only: bool = False) -> int:
        self.topic_configs.validate(configs, topic.configs)
        if validate_only:
            return 0
        position = self._change("alter", topic.name, configs)
        topic.configs = dict(configs)
        return position

    def delete_records(self, partition: FakePartition, before_offset: int) -> tuple[int, int]:
        offset = partition.high_watermark if before_offset == -1 else before_offset
        if not 0 <= offset <= partition.high_watermark:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)
        if offset <= partition.start_offset:
            return partition.start_offset, 0
        position = self._change("start", partition.topic.name, partition.index, offset)
        partition.start_offset = offset
        return offset, position

    def allocate_producer_id(self) -> tuple[int, int]:
        position = self._change("producer")
        self.next_producer_id += 1
        return self.next_producer_id - 1, position

    def batch_for_time(self, partition: FakePartition, timestamp: int) -> Search | None:
        return partition.by_time.get(timestamp)

    def max_timestamp(self, partition: FakePartition) -> Search | None:
        return partition.newest


class FakePeer:
    def address_of(self, node: OtherNode) -> tuple[str, int]:
        return node.kafka

    """A connection whose threads run when the test says so."""

    owner = object()
    host = "broker.test"
    port = 9093
    peer_host = "127.0.0.1"
    software = ""
    since_ms = 0
    principal = ANONYMOUS
    mechanism = ""
    token_id = None
    login = None

    def __init__(self) -> None:
        self.apis = ApiTable(registered())
        self.jobs: list[tuple[Callable[[], object], Callable[[object, BaseException | None], None]]] = []

    def in_thread(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        self.jobs.append((work, then))

    def run_threads(self) -> None:
        jobs, self.jobs = self.jobs, []
        for work, then in jobs:
            try:
                result = work()
            except Exception as error:
                then(None, error)
            else:
                then(result, None)


@dataclass
class Pending:
    """An answer that waits; `answer` is None until it came."""

    key: int
    version: int
    value: object = None
    raw: bytes = b""

    @property
    def answer(self) -> Any:
        return None if self.value is None else self._decoded()

    def _decoded(self) -> Any:
        if registered()[self.key].raw:
            self.raw = bytes(self.value)  # type: ignore[call-overload]
        else:
            self.raw = encode_response(self.version, self.value)
            assert b"".join(finish(self.value.encode_slices(self.version))) == self.raw  # type: ignore[attr-defined]
        return read(RESPONSES[self.key], self.version, self.raw)


class Client:
    """Calls handlers as the server would, for one broker and one connection."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.core = getattr(broker, "kernel", broker)
        self.peer = FakePeer()

    def send(self, key: int, version: int, request: Any) -> Pending:
        """The answer, or what waits for it."""
        return self.send_bytes(key, version, request.encode(version))

    def send_bytes(self, key: int, version: int, body: bytes) -> Pending:
        api = registered()[key]
        ctx = Context(self.core, self.broker.services, self.peer, version, 1, "test")
        view = memoryview(bytearray(body))
        request = view if api.raw else finish(decode_request_slices(key, version, view))
        assert api.raw or request == decode_request(key, version, view)
        value = finish(settled(api.handler(ctx, request)))
        pending = Pending(key, version)
        if isinstance(value, Deferred):
            value.then(lambda answer: setattr(pending, "value", answer))
        else:
            pending.value = value
        return pending

    def ask(self, key: int, version: int, **fields: object) -> Any:
        """The answer to a request with these fields, after all threads have run and all changes are durable."""
        pending = self.send(key, version, REQUESTS[key](**fields))
        self.peer.run_threads()
        self.broker.flush()
        assert pending.answer is not None, "no answer came"
        return pending.answer


def versions(key: int) -> range:
    """Every version of an API that is advertised."""
    api = registered()[key]
    return range(api.min_version, api.max_version + 1)
