"""ListOffsets (2): a partition's first and next offset, and the offset for a time.

Timestamps from 0 on ask for the first record that is not older. The index answers "no such batch" at once; else the
batch must be read and its records walked, which may mean the disk, so all searches of a request run together in a
thread; the largest timestamp likewise. No match is no error: offset -1 and timestamp -1 (Spark's
startingOffsetsByTimestamp depends on it).

Negative timestamps are questions; each has a version from which on it may be asked (ReplicaManager.fetchOffset):

    -1  next visible offset      -2  first offset            -3  record with the largest timestamp (7+, KIP-734)
    -4  first local offset (8+)  -5  last tiered offset (9+)  -6  first offset not yet tiered (11, KIP-1023)

There are no tiers: -4 is -2, and -5 and -6 have no answer (offset -1), as in a Kafka without tiered storage.

The leader epoch told (4+) is that of the record; for the next offset, whose record is still to come, the present one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from halfmoon.adapters.kafka.duplicates import duplicates_in_slices
from halfmoon.adapters.kafka.errors import code, code_of
from halfmoon.adapters.kafka.lookup import check_leader_epoch, check_owner, epoch_at, partition_of, topic_named
from halfmoon.adapters.kafka.protocol import ListOffsetsResponse, Slices
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition

_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1


class _Search(NamedTuple):
    """A time to be found in a thread, and the result that waits for it."""

    result: Any
    run: Callable[[], tuple[int, int] | None]
    partition: Partition
    end: int
    """The first offset that this client may not see."""


def handle(ctx: Context, request: Any) -> Slices[object]:
    named = ((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
    twice = yield from duplicates_in_slices(named)
    searches: list[_Search] = []
    topics = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            yield
            result = _Partition(
                partition_index=wanted.partition_index, error_code=0, timestamp=-1, offset=-1, leader_epoch=-1
            )
            results.append(result)
            try:
                if (topic.name, wanted.partition_index) in twice:
                    raise BrokerError(Fault.INVALID_REQUEST)
                if wanted.timestamp < 0 and ctx.api_version < SINCE_VERSION.get(wanted.timestamp, 1 << 15):
                    raise BrokerError(Fault.UNSUPPORTED_VERSION)
                partition = partition_of(topic_named(ctx.core, topic.name), wanted.partition_index)
                check_owner(ctx.core, partition)
                check_leader_epoch(ctx.core, partition, wanted.current_leader_epoch)
                search = _look_up(ctx, result, partition, wanted.timestamp, request.isolation_level)
            except BrokerError as error:
                result.error_code = code_of(error)
                continue
            if search is not None:
                searches.append(search)
        topics.append(_Topic(name=topic.name, partitions=results))
    response = ListOffsetsResponse(throttle_time_ms=0, topics=topics)
    return _run(ctx, searches, response) if searches else response


def _look_up(ctx: Context, result: Any, partition: Partition, timestamp: int, isolation_level: int) -> _Search | None:
    """Write what is known at once into `result`; what is not is returned as a search."""
    end = partition.stable_offset if isolation_level == READ_COMMITTED else partition.high_watermark
    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        core = ctx.core
        run = core.max_timestamp(partition) if timestamp < 0 else core.batch_for_time(partition, timestamp)
        return None if run is None else _Search(result, run, partition, end)
    if timestamp == LATEST:
        result.offset, result.leader_epoch = end, ctx.core.owners.epoch_of(partition)
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = partition.start_offset
        result.leader_epoch = epoch_at(partition, partition.start_offset)
    return None


def _run(ctx: Context, searches: list[_Search], response: Any) -> Deferred:
    deferred = Deferred()

    def work() -> list[tuple[int, int] | BrokerError | None]:
        found: list[tuple[int, int] | BrokerError | None] = []
        for search in searches:
            try:
                found.append(search.run())
            except BrokerError as error:
                # Not the error itself: its traceback would hold on to this frame, this list, and through those to what
                # the search had decompressed, until a full garbage collection.
                found.append(BrokerError(error.fault, error.message))
            except OSError as error:
                found.append(BrokerError(Fault.KAFKA_STORAGE_ERROR, str(error)))
        return found

    def then(outcome: object, error: BaseException | None) -> None:
        if error is None:
            assert isinstance(outcome, list)
            for search, found in zip(searches, outcome, strict=True):
                _settle(search, found)
        else:
            for search in searches:
                search.result.error_code = code(Fault.UNKNOWN_SERVER_ERROR)
        deferred.complete(response)

    ctx.peer.in_thread(work, then)
    return deferred


def _settle(search: _Search, found: tuple[int, int] | BrokerError | None) -> None:
    if isinstance(found, BrokerError):
        search.result.error_code = code_of(found)
    elif found is not None and found[0] < search.end:
        search.result.offset, search.result.timestamp = found
        search.result.leader_epoch = epoch_at(search.partition, found[0])
