"""What the scenarios ask of a client, so that each is written once.

Values are texts. A kit's errors are the client's own; `is_fenced` tells those that say that another producer has taken
the transactional id.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
DEADLINE_S = 30.0
"""Kafka looks for transactions that are over their time every ten seconds."""
QUIET_S = 0.5
POLL_S = 0.2


class Taken(NamedTuple):
    partition: int
    offset: int
    value: str


class Producer(ABC):
    """One that has called initTransactions."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def send(self, topic: str, value: str, partition: int = 0) -> None: ...

    @abstractmethod
    def flush(self) -> None:
        """Returns when all is acknowledged; raises what went wrong with it."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def send_offsets(self, member: Member, topic: str, offsets: dict[int, int]) -> None:
        """The next offsets of the member's group, as a part of the transaction."""

    @abstractmethod
    def close(self) -> None: ...

    def write(self, topic: str, values: Sequence[str], partition: int = 0) -> None:
        for value in values:
            self.send(topic, value, partition)
        self.flush()

    def transaction(self, topic: str, values: Sequence[str], partition: int = 0, *, commit: bool = True) -> None:
        self.begin()
        self.write(topic, values, partition)
        if commit:
            self.commit()
        else:
            self.abort()


class Member(ABC):
    """A consumer of a group, which reads what is committed and commits nothing itself."""

    @abstractmethod
    def poll(self) -> list[Taken]:
        """Waits `POLL_S` at most, a little more the first time."""

    @abstractmethod
    def rewind(self, topic: str) -> None:
        """Back to what the group has committed, or to the beginning."""

    @abstractmethod
    def close(self) -> None: ...

    def take(self, count: int) -> list[Taken]:
        """So many at least."""
        found: list[Taken] = []
        end = time.monotonic() + DEADLINE_S
        while len(found) < count:
            assert time.monotonic() < end, f"got {len(found)} of {count}"
            found += self.poll()
        return found


class Kit(ABC):
    name: str

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._made: list[Any] = []

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> Producer:
        return self._keep(self.new_producer(transactional_id, timeout_ms))

    def member(self, group: str, topic: str) -> Member:
        return self._keep(self.new_member(group, topic))

    def read(self, topic: str, isolation: str = COMMITTED, partitions: int = 1) -> Reading:
        """From the beginning."""
        reader = self._keep(self.new_reader(topic, isolation, partitions))
        return Reading(reader.poll)

    @abstractmethod
    def new_producer(self, transactional_id: str, timeout_ms: int) -> Producer: ...

    @abstractmethod
    def new_member(self, group: str, topic: str) -> Member: ...

    @abstractmethod
    def new_reader(self, topic: str, isolation: str, partitions: int) -> Member:
        """One without a group, from the beginning."""

    @abstractmethod
    def is_fenced(self, error: Exception) -> bool: ...

    def fenced(self, call: Callable[[], object]) -> None:
        """The call fails because another producer has the id."""
        with pytest.raises(Exception) as caught:  # noqa: PT011 - each client has its own
            call()
        assert self.is_fenced(caught.value), f"{type(caught.value).__name__}: {caught.value}"

    def close(self) -> None:
        while self._made:
            # Producers that were fenced on purpose, and connections to brokers that are gone.
            with suppress(Exception):
                self._made.pop().close()

    def _keep(self, made: Any) -> Any:
        self._made.append(made)
        return made


class Reading:
    """What a reader has found so far."""

    def __init__(self, poll: Callable[[], list[Taken]]) -> None:
        self._poll = poll
        self.taken: list[Taken] = []

    def values(self, partition: int | None = None) -> list[str]:
        return [taken.value for taken in self.taken if partition in (None, taken.partition)]

    def gets(self, wanted: Sequence[str], quiet_s: float = QUIET_S) -> None:
        """These values in this order, and no more within `quiet_s`."""
        self.until(len(wanted))
        self.is_quiet(quiet_s)
        assert self.values() == list(wanted)

    def until(self, count: int) -> None:
        """So many at least."""
        end = time.monotonic() + DEADLINE_S
        while len(self.taken) < count:
            assert time.monotonic() < end, f"only {self.values()} of {count}"
            self.taken += self._poll()

    def is_quiet(self, quiet_s: float = QUIET_S) -> None:
        before = list(self.taken)
        end = time.monotonic() + quiet_s
        while time.monotonic() < end:
            self.taken += self._poll()
        assert self.taken == before
