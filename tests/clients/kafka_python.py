"""kafka-python's consumers, as the tests of clients and of assignors use them."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.errors import KafkaConnectionError, KafkaError

from tests.clients.polling import DEADLINE_S


def reader(servers: str, **settings: Any) -> KafkaConsumer:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return KafkaConsumer(bootstrap_servers=servers, **{**defaults, **settings})


class Member(threading.Thread, ConsumerRebalanceListener):
    """A group member in a thread of its own, so that a rebalance does not wait for the other one's turn.

    Two that take turns may even rebalance for ever: a poll that ends meanwhile has its member join once more.
    """

    def __init__(self, servers: str, group: str, topic: str, **settings: Any) -> None:
        super().__init__(name=f"member of {group}", daemon=True)
        self.seen: list[tuple[int, int]] = []
        """(partition, offset) of every record, in the order it came."""
        self.values: set[bytes] = set()
        self.owned: set[int] = set()
        self.rebalances = 0
        self.leaving = threading.Event()
        self._consumer = reader(
            servers,
            group_id=group,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=100,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
            **settings,
        )
        self._consumer.subscribe([topic], listener=self)
        self.start()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.rebalances += 1
        self.owned = {place.partition for place in assigned}

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.owned = set()

    def run(self) -> None:
        with closing(self._consumer):
            while not self.leaving.is_set():
                for place, records in self._poll().items():
                    self.seen += [(place.partition, record.offset) for record in records]
                    self.values.update(record.value for record in records)
                    self._commit()

    def _poll(self) -> dict[Any, list[Any]]:
        try:
            return self._consumer.poll(timeout_ms=500)
        except KafkaConnectionError:
            return {}  # while the only broker is away, a poll may raise that the metadata could not be asked for

    def _commit(self) -> None:
        try:
            self._consumer.commit()
        except KafkaError:
            pass  # a rebalance or a restart came in between: the records come again, as they must

    def leave(self) -> None:
        self.leaving.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()
