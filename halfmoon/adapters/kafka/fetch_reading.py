"""One Fetch request being read: which batches of which partitions it gets, and what of them has to come from the disk.

Limits, as Kafka has them (KIP-74): the batches of a partition stay within its `max_bytes` and within what is left of
the request's, except that the first batch of the first partition that has any is sent whatever its size, so that a
reader always gets on. Of batches of a few bytes each there are MOST_PLACES or so in an answer at most, so that it is
put together in some milliseconds.

Cold data is read in a thread (`Reading.cold`), once there is memory for it, and so much of it that there is some left
for others (`FetchBuffers`).

Rules: KafkaApis.handleFetchRequest, ReplicaManager.readFromLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from halfmoon.adapters.kafka.current_leader import current_leader
from halfmoon.adapters.kafka.errors import TOPIC_AUTHORIZATION_FAILED, code, code_of
from halfmoon.adapters.kafka.fetch_codec import Buffer, FetchBody, Fetched, Wanted, encode, encode_in_slices
from halfmoon.adapters.kafka.lookup import check_leader_epoch, check_owner, divergence, partition_of
from halfmoon.adapters.kafka.nearby import Near, Nearby
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.shards import Confirm, pass_on
from halfmoon.adapters.tcp.steps import AskingSlices
from halfmoon.core.hold import Held
from halfmoon.core.storage.consume_queue import MOST_PLACES
from halfmoon.errors import AsksFirstError, BrokerError, Fault
from halfmoon.services.common.leaving_out import LeavingOut

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.steps import Slices

log: Final = logging.getLogger("halfmoon.kafka")

MAX_RESPONSE_BYTES: Final = 55 << 20
"""No response is larger, except for a first batch that is (Kafka: fetch.max.bytes of the broker)."""

SLICE = 200
"""Partitions that are read in one go: two milliseconds."""

Cold = list[tuple[Fetched, Callable[[], Sequence[Buffer]]]]


class Reading:
    """One request being read, and what was found so far."""

    __slots__ = (
        "_batches", "_given", "_load_left", "_out_of_range", "_wanted", "cold", "core", "ctx", "failed",
        "leaving_out", "near", "request", "size", "topics",
    )  # fmt: skip

    def __init__(self, ctx: Context, request: FetchBody) -> None:
        self.ctx = ctx
        self.core = ctx.core
        self.leaving_out = ctx.services.find(LeavingOut)
        self.request = request
        self.near: Near | None = None
        """Of a consumer that says in which rack it is, where that matters."""
        self._wanted: list[tuple[Partition, Wanted]] = []
        self._given: list[tuple[Topic, Fetched]] = []
        """Those of which there is something to send."""
        self._clear()

    def _clear(self) -> None:
        self._wanted.clear()
        self._given.clear()
        self.topics: list[tuple[str | bytes, list[Fetched]]] = []
        self.cold: Cold = []
        self.size = 0
        self._batches = 0
        """Of those that are in memory."""
        self._load_left = self.core.fetch_buffers.allowance()
        self.failed = False
        self._out_of_range = False

    def read(self) -> None:
        """Read every partition as far as the limits allow, anew."""
        self._clear()
        for key, wanted in self.request.topics:
            fetched: list[Fetched] = []
            self._read_partitions(key, wanted, fetched)
            self.topics.append((key, fetched))

    def read_in_slices(self) -> Slices[None]:
        """The same with pauses: partitions may go on while others are read."""
        self._clear()
        left = SLICE
        for key, wanted in self.request.topics:
            fetched: list[Fetched] = []
            self.topics.append((key, fetched))
            for first in range(0, len(wanted), SLICE):
                some = wanted[first : first + SLICE]
                self._read_partitions(key, some, fetched)
                left -= len(some)
                if left <= 0:
                    yield None
                    left = SLICE
            left -= 1

    def to_park(self, mono_ms: int, wake: Callable[[], None], ready: Callable[[], bool] | None) -> Held:
        """What waits in `core.hold` for the bytes that are missing. `wake` and `ready`: as of Held."""
        request = self.request
        return Held(
            partitions=[partition for partition, _ in self._wanted],
            missing_bytes=request.min_bytes - self.size,
            deadline_ms=mono_ms + request.max_wait_ms,
            owner=self.ctx.peer.owner,
            wake=wake,
            match=is_readable if request.read_committed else None,
            ready=ready,
        )

    def _read_partitions(self, key: str | bytes, wanted: Sequence[Wanted], fetched: list[Fetched]) -> None:
        core = self.core
        topic = core.catalog.topic(key) if isinstance(key, str) else core.catalog.topic_by_id(key)
        limit = min(self.request.max_bytes, MAX_RESPONSE_BYTES)
        for part in wanted:
            left = limit - self.size if self._batches < MOST_PLACES else 0
            found = self._read_partition(topic, key, part, left)
            self.size += found.size
            self._batches += len(found.records)
            fetched.append(found)

    def _read_partition(self, topic: Topic | None, key: str | bytes, wanted: Wanted, left: int) -> Fetched:
        core = self.core
        try:
            if topic is None and isinstance(key, bytes):
                raise BrokerError(Fault.UNKNOWN_TOPIC_ID)
            if self.ctx.rights is not None:
                self.ctx.check("read", "topic", key if isinstance(key, str) else topic.name)  # type: ignore[union-attr]
            partition = partition_of(topic, wanted.index)
            if partition.topic.hidden:
                return self._refused(wanted.index, TOPIC_AUTHORIZATION_FAILED)
            near = self.near
            if near is not None and core.owners.owner_of(partition) != core.node_id:
                return self._take_from_near(near, partition, wanted, left)
            check_owner(core, partition)
            check_leader_epoch(core, partition, wanted.leader_epoch)
            found = Fetched(wanted.index, 0, partition.high_watermark, partition.stable_offset, partition.start_offset)
            if wanted.last_epoch >= 0:
                found.diverging = divergence(core, partition, wanted.last_epoch, wanted.offset)
                if found.diverging is not None:
                    self.failed = True
                    return found
            if near is not None and partition.start_offset <= wanted.offset <= partition.high_watermark:
                found.preferred = near.preferred(partition)
                if found.preferred >= 0:
                    self.failed = True  # there is nothing to wait for here
                    return found
            nothing_yet = self.size == 0
            max_bytes = min(wanted.max_bytes, left)
            committed = self.request.read_committed
            read = core.read(
                partition, wanted.offset, max(max_bytes, 0), min_one=nothing_yet, committed=committed,
                load_bytes=self._load_left,
            )  # fmt: skip
            if read.loads:
                self._load_left = max(0, self._load_left - read.size)
            if committed:
                found.aborted = core.aborted_in(partition, wanted.offset, read.size)
        except BrokerError as error:
            refused = self._refused(wanted.index, code(error.fault))
            if error.fault is Fault.OFFSET_OUT_OF_RANGE:
                self._out_of_range = True
            if error.fault is Fault.NOT_LEADER_OR_FOLLOWER:
                refused.leader = current_leader(self.ctx, topic, wanted.index)
            return refused
        self._wanted.append((partition, wanted))
        found.records = read.slices
        found.size = read.size
        if read.size:
            self._given.append((partition.topic, found))
        if read.cold is not None:
            self.cold.append((found, read.cold))
        elif self.leaving_out is not None:
            _leave_out(self.leaving_out, partition.topic.name, found)
        return found

    def _take_from_near(self, near: Near, partition: Partition, wanted: Wanted, left: int) -> Fetched:
        """Of a partition that another node leads. Raises BrokerError."""
        found = near.found(partition, wanted, min(wanted.max_bytes, left), nothing_yet=self.size == 0)
        if found.diverging is not None:
            self.failed = True
        if found.size:
            self._given.append((partition.topic, found))
            if self.leaving_out is not None:
                _leave_out(self.leaving_out, partition.topic.name, found)
        return found

    def _refused(self, index: int, error_code: int) -> Fetched:
        self.failed = True
        return Fetched(index, error_code)

    def satisfied(self) -> bool:
        """Whether there is nothing to wait for."""
        request = self.request
        if self.size >= request.min_bytes or self._batches >= MOST_PLACES:
            return True
        return self.failed or request.max_wait_ms <= 0 or not self._wanted

    def enough_available(self) -> bool:
        """Whether `min_bytes` could be read now; asked again and again while the request is parked."""
        available = 0
        for partition, wanted in self._wanted:
            available += self.core.bytes_available(
                partition, wanted.offset, wanted.max_bytes, committed=self.request.read_committed
            )
            if available >= self.request.min_bytes:
                return True
        return False

    def answer(self) -> object:
        """The response: buffers, or a Deferred where some of it must come from the disk first."""
        confirm = self._doubt() if self._out_of_range else None
        if confirm is None:
            return self._answer()
        deferred = Deferred()

        def told(certain: bool) -> None:
            self._believe(certain)
            pass_on(self._answer(), deferred)

        confirm(told)
        return deferred

    def _doubt(self) -> Confirm | None:
        """A reader that is told that its offset is out of range begins elsewhere. Another node may have the partition,
        and more of it: so that must be true now."""
        nearby = self.ctx.services.find(Nearby)
        return None if nearby is None else nearby.confirm

    def _ask_first(self, confirm: Confirm, told: Callable[[BrokerError | None], None]) -> None:
        def confirmed(certain: bool) -> None:
            self._believe(certain)
            told(None)

        confirm(confirmed)

    def _believe(self, certain: bool) -> None:
        if not certain:
            out, not_here = code(Fault.OFFSET_OUT_OF_RANGE), code(Fault.NOT_LEADER_OR_FOLLOWER)
            for _, fetched in self.topics:
                for found in fetched:
                    if found.error_code == out:
                        found.error_code = not_here

    def _answer(self) -> object:
        if not self.cold:
            return self.encoded()
        deferred = Deferred()

        def arrived(_: object, error: BaseException | None) -> None:
            self._cold_is_here(error)
            deferred.complete(self.encoded())

        self.load(self._load_cold, arrived)
        return deferred

    def load(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """For what reads all that is cold: `work` runs in a thread once there is room for it."""
        self.ctx.peer.load(sum(found.size for found, _ in self.cold), work, then)

    def _cold_is_here(self, error: BaseException | None) -> None:
        if error is not None:
            for found, _load in self.cold:
                _spoil(found, error)
        elif self.leaving_out is not None:
            self._leave_out_of_cold(self.leaving_out)

    def answer_in_slices(self) -> AskingSlices[list[Buffer]]:
        """The response; the one load is for `load`."""
        confirm = self._doubt() if self._out_of_range else None
        if confirm is not None:
            yield AsksFirstError(partial(self._ask_first, confirm))
        if self.cold:
            error: BaseException | None = None
            try:
                yield self._load_cold
            except Exception as failure:
                error = failure
            self._cold_is_here(error)
        self._count()
        return (yield from encode_in_slices(self.topics, self.ctx.api_version, self.request.read_committed))

    def _leave_out_of_cold(self, leaving_out: LeavingOut) -> None:
        cold = {id(found) for found, _ in self.cold}
        for key, fetched in self.topics:
            topic = self.core.catalog.topic(key) if isinstance(key, str) else self.core.catalog.topic_by_id(key)
            for found in fetched:
                if topic is not None and id(found) in cold:
                    _leave_out(leaving_out, topic.name, found)

    def _load_cold(self) -> None:
        """In a thread: fetch what is not in memory. It touches nothing but the slices of this answer."""
        for found, load in self.cold:
            try:
                found.records = load()
                found.size = sum(map(len, found.records))
            except OSError as error:
                _spoil(found, BrokerError(Fault.KAFKA_STORAGE_ERROR, str(error)))
            except BrokerError as error:
                _spoil(found, error)

    def encoded(self) -> list[Buffer]:
        self._count()
        return encode(self.topics, self.ctx.api_version, self.request.read_committed)

    def _count(self) -> None:
        if self.core.on_fetched:
            self._tell_observers()
        sent = self.core.catalog.traffic.sent
        for topic, found in self._given:
            sent(topic, found.size)

    def _tell_observers(self) -> None:
        core = self.core
        for key, fetched in self.topics:
            topic = core.catalog.topic(key) if isinstance(key, str) else core.catalog.topic_by_id(key)
            for found in fetched:
                if topic is not None and found.size:
                    for told in core.on_fetched:
                        told(topic.name, found.index, found.size)


def _leave_out(leaving_out: LeavingOut, topic: str, found: Fetched) -> None:
    found.records = leaving_out.batches(topic, found.records)
    found.size = sum(map(len, found.records))


def is_readable(partition: Partition, _arrival: object) -> bool:
    """Whether what arrives in a partition may be read by who reads committed records only; if not, the end of its
    transaction has the request looked at again. As `match` of Held."""
    return partition.transactions is None or partition.stable_offset == partition.high_watermark


def complete(deferred: Deferred, reading: Reading) -> None:
    """Read anew, and answer with what there is."""
    try:
        reading.read()
        answer = reading.answer()
    except Exception:
        # A programmer's error. It must not reach who woke us: others are still to be woken.
        log.exception("event=request_failed api=Fetch")
        deferred.complete(Close("a parked fetch failed"))
        return
    if isinstance(answer, Deferred):
        answer.then(deferred.complete)
    else:
        deferred.complete(answer)


def _spoil(found: Fetched, error: BaseException) -> None:
    """A read that failed leaves an error in its partition and nothing else."""
    found.error_code = code_of(error)
    found.high_watermark = found.stable_offset = found.start_offset = -1
    found.records, found.size, found.aborted = (), 0, ()
