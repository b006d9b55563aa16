"""What a node tells others of the partitions that it leads, so that they can serve readers of their racks: where the
batches stand that a reader gets next, and which pieces of the log have them. What is in no object yet goes with the
answer: the database would be asked for it once for each commit and reader, and it is one for all nodes.

A question waits here as a Fetch does (adapters/kafka/fetch_reading.py): it is answered when enough has come, when its
time is over, or when a partition cannot be read any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from halfmoon.adapters.kafka.fetch_reading import is_readable
from halfmoon.adapters.kafka.lookup import check_leader_epoch, check_owner, divergence, partition_of
from halfmoon.cluster.engine.pieces import IN_DATABASE
from halfmoon.cluster.messages import Done
from halfmoon.cluster.reading_messages import NOT_HERE, AskPlaces, CannotRead, LookNow, Placed, PlacesFound
from halfmoon.core.hold import Held
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.snapshot import CLEAN_BASE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from halfmoon.adapters.kafka.shards import Confirm
    from halfmoon.cluster.asking import Answers, Told
    from halfmoon.cluster.engine.log import ShardLog
    from halfmoon.cluster.engine.pieces import Piece
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.storage.storage import Place
    from halfmoon.server.workers.front import Front

logger = logging.getLogger("halfmoon.cluster")

SPARED_S: Final = 30.0
"""So long nobody is sent to a node that could not read."""
SENT_BYTES: Final = 1 << 20
"""So much goes with an answer, at most."""


class _Offer:
    """What there is for a question at one moment."""

    def __init__(self, front: Front, logs: Mapping[int, ShardLog], asked: AskPlaces) -> None:
        self._front = front
        self._logs = logs
        self._asked = asked
        self.rows: list[Placed] = []
        self.size = 0
        self.is_over = False
        """There is nothing to wait for."""
        self.partitions: list[tuple[Partition, int, int]] = []
        """(partition, offset, most bytes) of those that can be waited for."""
        self._pieces: dict[tuple[int, int], Piece] = {}
        """By shard and start."""
        self._left = SENT_BYTES
        for row in asked.rows:
            try:
                self.rows.append(self._placed(*row))
            except BrokerError as error:
                self.is_over = True
                self.rows.append(Placed(error.fault.name))
        self.is_over = self.is_over or self.size >= asked.min_bytes

    def _placed(
        self, number: int, index: int, offset: int, leader_epoch: int, last_epoch: int, max_bytes: int
    ) -> Placed:
        """Raises BrokerError."""
        front, committed = self._front, self._asked.committed
        topic = front.catalog.by_number.get(number)
        partition = partition_of(topic, index)
        check_owner(front, partition)
        check_leader_epoch(front, partition, leader_epoch)
        ends = partition.high_watermark, partition.stable_offset, partition.start_offset
        if last_epoch >= 0:
            diverging = divergence(front, partition, last_epoch, offset)
            if diverging is not None:
                self.is_over = True
                return Placed("", *ends, diverging)
        most = max(0, min(max_bytes, self._asked.max_bytes - self.size))
        places = front.places(partition, offset, most, min_one=self.size == 0, committed=committed)
        shard = front.shard_of(partition.topic, index)
        count, pieces = self._logs[shard].pieces_of(places)
        places = places[:count]
        size = sum(length for _, length in places)
        self.size += size
        batches = self._rows(partition, pieces, places)
        self._pieces.update(((shard, piece.start), piece) for piece in pieces)
        self.partitions.append((partition, offset, max_bytes))
        aborted = front.aborted_in(partition, offset, size) if committed else ()
        said = [(each.producer_id, each.first_offset, each.last_offset) for each in aborted]
        return Placed("", *ends, None, shard, list(places), said, batches)

    def _rows(self, partition: Partition, pieces: list[Piece], places: Sequence[Place]) -> list[memoryview]:
        """What is in the database yet, and in memory here, goes with the answer: of the last places. Their pieces are
        taken from `pieces`."""
        rows = 0
        for at in range(len(pieces) - 1, -1, -1):
            if pieces[at].key != IN_DATABASE:
                break
            rows += 1
        if not rows:
            return []
        start = pieces[-rows].start
        wanted = [place for place in places if start <= place[0] < CLEAN_BASE]
        size = sum(length for _, length in wanted)
        if size > self._left:
            return []
        read = self._front.read_at(partition, wanted)
        if read.cold is not None or len(read.slices) != len(wanted):
            return []
        self._left -= size
        del pieces[-rows:]
        return [memoryview(each) for each in read.slices]

    def answer(self) -> PlacesFound:
        return PlacesFound(
            self.rows,
            [
                (shard, piece.start, piece.end, piece.crc, piece.segment, piece.key, piece.at)
                for (shard, _), piece in self._pieces.items()
            ],
        )


class Places:
    """Of one node. In its loop."""

    def __init__(
        self, front: Front, logs: Mapping[int, ShardLog], confirm: Confirm, now_s: Callable[[], float]
    ) -> None:
        """`logs`: by shard, of those that are open here. `confirm`: as of adapters/kafka/shards.Homes."""
        self._front = front
        self._logs = logs
        self._confirm = confirm
        self._now_s = now_s
        self._waiting: dict[tuple[int, int], Held] = {}
        """By process and reader."""
        self._spared: dict[int, float] = {}
        """Process → until when nobody is sent there."""

    def answers(self) -> Answers:
        return {AskPlaces: self._asked, LookNow: self._look_now, CannotRead: self._cannot_read}

    def is_spared(self, process: int) -> bool:
        """Whether it has said lately that it cannot read."""
        until_s = self._spared.get(process)
        if until_s is None:
            return False
        if until_s > self._now_s():
            return True
        del self._spared[process]
        return False

    def _asked(self, asked: AskPlaces, told: Told) -> None:
        offer = _Offer(self._front, self._logs, asked)
        if offer.is_over or asked.wait_ms <= 0 or not offer.partitions:
            self._tell(offer, told)
            return
        front, key, partitions = self._front, (asked.process, asked.reader), offer.partitions
        mono_ms = front.clock.mono_ms()

        def wake() -> None:
            self._waiting.pop(key, None)
            self._tell(_Offer(front, self._logs, asked), told)

        def enough() -> bool:
            available = 0
            for partition, offset, most in partitions:
                available += front.bytes_available(partition, offset, most, committed=asked.committed)
                if available >= asked.min_bytes:
                    return True
            return False

        held = self._waiting[key] = Held(
            [partition for partition, _, _ in partitions],
            asked.min_bytes - offer.size,
            mono_ms + asked.wait_ms,
            self,
            wake,
            is_readable if asked.committed else None,
            enough,
        )
        front.hold.park(held, mono_ms)

    def _look_now(self, asked: LookNow, told: Told) -> None:
        held = self._waiting.get((asked.process, asked.reader))
        if held is not None:
            self._front.hold.wake(held)
        told(Done())

    def _cannot_read(self, asked: CannotRead, told: Told) -> None:
        self._spared[asked.process] = self._now_s() + SPARED_S
        logger.warning("event=node_cannot_read process=%d spared_s=%g", asked.process, SPARED_S)
        told(Done())

    def _tell(self, offer: _Offer, told: Told) -> None:
        """A reader that is told that its offset is out of range begins elsewhere: that must be true now."""
        out = Fault.OFFSET_OUT_OF_RANGE.name
        if all(row.fault != out for row in offer.rows):
            told(offer.answer())
            return

        def confirmed(certain: bool) -> None:
            if not certain:
                offer.rows[:] = [NOT_HERE if row.fault == out else row for row in offer.rows]
            told(offer.answer())

        self._confirm(confirmed)
