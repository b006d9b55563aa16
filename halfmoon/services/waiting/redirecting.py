"""Appending a batch that interceptors have taken apart (services/waiting/interception.py): all of it, or nothing.

What stays, what waits elsewhere, and waiting messages that the batch releases are the pieces of one frame group. The
provenance of what was released or completed, and of what a group has negatively acknowledged, stands in the frames
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from halfmoon.core.append_types import Piece
from halfmoon.core.catalog.topics import RemotePartition
from halfmoon.core.pending import bits_by_queue
from halfmoon.core.records.batch_header import BatchHeader, set_own_times
from halfmoon.core.records.batches import parse_header, set_log_append_time
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.group_topics import retrying_group
from halfmoon.schema.provenance import Origin, Provenance, SentBack, SourceRun
from halfmoon.services.common.group_events import GroupEvents, tell
from halfmoon.services.common.record_edit import of_producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from halfmoon.core.append import Appender
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.steps import Slices
    from halfmoon.core.storage.storage import WriteSide
    from halfmoon.core.topic_administration import TopicAdministration
    from halfmoon.core.turn import Turn
    from halfmoon.services.common.gathering import Outgoing
    from halfmoon.services.waiting.cancels import Cancels
    from halfmoon.services.waiting.delivering import Delivering
    from halfmoon.services.waiting.queues import WaitingQueues
    from halfmoon.services.waiting.taken import Taken
    from halfmoon.services.waiting.types import Nacked, Redirected

MAX_PIECES = 32_000
"""Most parts a batch is taken apart into, and most waiting messages it completes."""
CHECKED = 500
"""Messages of which is looked whether they wait, between two pauses."""
MANY_PIECES = 1_000
"""A batch that is taken apart into so many is written at once."""
WAITING_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "halfmoon.headers.enable": "false",
}
"""Of internal topics in which messages wait: they stay until they are completed, whatever the node's defaults are."""


Message = tuple[int, int, int]
"""Where it is: topic number, partition, offset."""


class _Piece:
    """One frame of the group."""

    __slots__ = ("batch", "due_ms", "header", "is_redirected", "known", "sources", "target")

    def __init__(
        self,
        target: Partition,
        batch: memoryview,
        header: BatchHeader,
        due_ms: int = 0,
        sources: Sequence[SourceRun] = (),
        is_redirected: bool = False,
        known: bool = False,
    ) -> None:
        """`sources`: the waiting messages that it is made of."""
        self.target = target
        self.batch = batch
        self.header = header
        self.due_ms = due_ms
        self.sources = sources
        self.is_redirected = is_redirected
        self.known = known


class Redirecting:
    def __init__(
        self,
        log: WriteSide,
        turn: Turn,
        appender: Appender,
        administration: TopicAdministration,
        catalog: Catalog,
        queues: WaitingQueues,
        delivering: Delivering,
        cancels: Cancels,
    ) -> None:
        self._log = log
        self._turn = turn
        self._appender = appender
        self._administration = administration
        self._catalog = catalog
        self._queues = queues
        self._delivering = delivering
        self._cancels = cancels
        self.events = GroupEvents()
        self.own_topics: Mapping[str, Mapping[str, str]] = {}
        """Internal topics in which interceptors keep records, and their configurations."""

    def append(
        self, partition: Partition, batch: memoryview, header: BatchHeader, taken: Taken, now_ms: int, *, keyed: bool
    ) -> tuple[int, int, list[tuple[Partition, int]]]:
        """Append what interceptors make of a batch, as one frame group; the base offset (−1 where nothing stays), the
        log position behind it, and where the first record of each of `taken.redirected` stands. `keyed`: as of
        `Appender.append_group`. Raises BrokerError."""
        pieces = self._pieces(partition, batch, header, taken, now_ms)
        completed = self._waiting(taken.complete) if taken.completed is None else taken.completed
        cancelled = tuple(dict.fromkeys(taken.cancel))
        _check_sizes(pieces, completed, cancelled)
        nacked = taken.sent_back
        if nacked is None and taken.nacked is not None:
            nacked = self._sent_back(taken.nacked.group, self._known(taken.nacked.places))
        before: list[control.Any] = []
        if cancelled:
            # Before the pieces: once they are in the log, the batch counts as sent, and does not come again.
            before.append(self._cancels.cancelled(partition.topic, cancelled))
        if not pieces:
            for record in before:
                self._appender.append_control(record)
            if before:
                self._cancels.was_asked()
            if completed:
                self._appender.append_control(control.Settled(list(completed)))
            return -1, self._acknowledge(partition, header, now_ms), []
        base_offset = partition.next_offset if taken.kept is not None else -1
        places = _places(pieces)
        origin = Origin(partition.topic.number, partition.index)
        group: list[Piece] = []
        for piece in pieces:
            sources, sent_back, original_span = piece.sources, None, 0
            if not group:
                sources, sent_back, original_span = (*sources, *_runs(completed)), nacked, header.record_count
            proof = Provenance(None, tuple(sources), sent_back, None if piece.target is partition else origin)
            group.append(Piece(piece.target, piece.batch, piece.header, proof, original_span, piece.due_ms))
        end = self._appender.append_group(group, now_ms, before=before, keyed=keyed)
        if before:
            self._cancels.was_asked()
        self._tell(partition, pieces)
        redirected: list[tuple[Partition, int]] = []
        for piece, first in zip(pieces, places, strict=True):
            if piece.due_ms:
                self._queues.waits_in(piece.target, first, _span(piece) if piece.known else 0)
            if piece.is_redirected:
                redirected.append((piece.target, first))
        if len(pieces) >= MANY_PIECES:
            # Else those of several batches, which take much more memory than the batches, would meet.
            self._turn.write()
        return base_offset, end, redirected

    def _pieces(
        self, partition: Partition, batch: memoryview, header: BatchHeader, taken: Taken, now_ms: int
    ) -> list[_Piece]:
        """Of them the first says which producer all are from."""
        pieces: list[_Piece] = []
        if taken.kept is batch:
            pieces.append(_Piece(partition, batch, header))
        elif taken.kept is not None:
            made = _made(taken.kept, header, first=True, own_times=False)
            pieces.append(_Piece(partition, made, parse_header(made)))
        for each in taken.redirected:
            made = _made(each.batch, header, first=not pieces, own_times=each.own_times)
            target = self._target(each)
            pieces.append(_Piece(target, made, parse_header(made), each.due_ms, (), True, each.known))
        for out in self._released(taken.release) if taken.released is None else taken.released:
            released = out.batch()
            set_log_append_time(memoryview(released), now_ms)
            made = _made(released, header, first=not pieces, own_times=False)
            pieces.append(_Piece(out.target, made, parse_header(made), 0, out.sources()))
        return pieces

    def _tell(self, partition: Partition, pieces: Sequence[_Piece]) -> None:
        """Of what a group has negatively acknowledged: part of it may be given up."""
        group = retrying_group(partition.topic.name)
        if group is None:
            return
        given_up = sum(piece.header.record_count for piece in pieces if piece.is_redirected and not piece.due_ms)
        again = sum(piece.header.record_count for piece in pieces) - given_up
        tell(self.events.redelivered, group, partition.topic.name, partition.index, again)
        tell(self.events.dead_lettered, group, partition.topic.name, partition.index, given_up)

    def _waiting(self, places: Iterable[tuple[str, int, int]]) -> list[Message]:
        """Those of the messages that wait."""
        found = []
        for name, index, offset in dict.fromkeys(places):
            topic = self._catalog.by_name.get(name)
            pending = None if topic is None else topic.partitions[index].pending
            if topic is not None and pending is not None and offset in pending:
                found.append((topic.number, index, offset))
        return found

    def waiting_in_slices(self, places: Sequence[tuple[str, int, int]]) -> Slices[list[Message]]:
        found: list[Message] = []
        for at in range(0, len(places), CHECKED):
            found += self._waiting(places[at : at + CHECKED])
            yield None
        return found

    def _released(self, places: Sequence[tuple[str, int, int]]) -> list[Outgoing]:
        found = list(self._placed(self._waiting(places)))
        return self._delivering.release(found) if found else []

    def released_in_slices(self, waiting: Sequence[Message]) -> Slices[list[Outgoing]]:
        """The batches that waiting messages become when they are delivered: for `Taken.released`. Raises BrokerError,
        also NotHereYetError."""
        return self._delivering.release_in_slices(list(self._placed(waiting)))

    def _placed(self, waiting: Iterable[Message]) -> Iterator[tuple[Partition, int]]:
        for number, index, offset in waiting:
            partition = self._catalog.partition(number, index)
            if partition is not None:
                yield partition, offset

    def still_wait(self, waiting: Iterable[Message]) -> Callable[[], bool]:
        """Tells whether all of these messages wait still: at once, however many they are."""
        bits = bits_by_queue(waiting)

        def tell() -> bool:
            for place, offsets in bits.items():
                partition = self._catalog.partition(*place)
                if partition is None or partition.pending is None or not partition.pending.holds(offsets):
                    return False
            return True

        return tell

    def _acknowledge(self, partition: Partition, header: BatchHeader, now_ms: int) -> int:
        """Acknowledge a batch of which nothing is left; the log position to wait for."""
        if header.producer_id < 0:
            return self._log.end
        return self._appender.append_control(
            control.ProducerAdvanced(
                partition.topic.number, partition.index, header.producer_id, header.producer_epoch,
                header.base_sequence, header.record_count, now_ms,
            )
        )  # fmt: skip

    def _known(self, places: Sequence[tuple[str, int, int]]) -> list[Message]:
        """Those of the messages that are, or were, where a group says it had them from. Of a partition that lies in
        another shard nobody here knows how far it goes."""
        return [
            (topic.number, index, offset)
            for name, index, offset in places
            if (topic := self._catalog.by_name.get(name)) is not None
            and index < len(topic.partitions)
            and (offset < topic.partitions[index].next_offset or isinstance(topic.partitions[index], RemotePartition))
        ]

    def _sent_back(self, group: str, known: Sequence[Message]) -> SentBack | None:
        return SentBack(group, _runs(known)) if known else None

    def sent_back_in_slices(self, nacked: Nacked) -> Slices[tuple[SentBack | None, Callable[[], bool]]]:
        """For `Taken.sent_back`; and whether it is still so."""
        known: list[Message] = []
        for at in range(0, len(nacked.places), CHECKED):
            known += self._known(nacked.places[at : at + CHECKED])
            yield None
        sent_back = self._sent_back(nacked.group, known)
        partitions = {place[:2] for place in known}
        return sent_back, lambda: all(index < self._catalog.partition_count(number) for number, index in partitions)

    def _target(self, each: Redirected) -> Partition:
        if each.due_ms:
            return self.waiting_partition(each.topic, each.partition)
        configs = self.own_topics.get(each.topic)
        if configs is not None:
            return self._administration.internal_partition(each.topic, configs)
        return self._administration.first_partition(each.topic, dict(each.configs))

    def waiting_partition(self, name: str, index: int) -> Partition:
        """A partition of an internal topic in which messages wait; topic and partition are made if need be. Raises
        BrokerError."""
        if name not in self._queues.claimed:
            raise BrokerError(
                Fault.UNKNOWN_SERVER_ERROR,
                f"no interceptor lists '{name}' in its scheduled_topics",
            )
        topic = self._catalog.by_name.get(name)
        if topic is None:
            topic, _ = self._administration.create_topic(name, index + 1, WAITING_CONFIGS, internal=True)
        elif not topic.internal:
            raise BrokerError(Fault.UNKNOWN_SERVER_ERROR, f"topic '{name}' should be internal, and is not")
        if index >= len(topic.partitions):
            self._administration.add_partitions(topic, index + 1)
        return topic.partitions[index]


def _made(batch: Buffer, like: BatchHeader, *, first: bool, own_times: bool) -> memoryview:
    """A batch that may be written to. `first`: it says which producer all pieces are from."""
    made = of_producer(batch, like) if first and like.producer_id >= 0 else batch
    view = memoryview(made if isinstance(made, bytearray) else bytearray(made))
    set_own_times(view, own=own_times)
    return view


def _check_sizes(pieces: Sequence[_Piece], completed: Sequence[Message], cancelled: Sequence[bytes]) -> None:
    """Raises BrokerError(INVALID_RECORD)."""
    most = max(len(pieces), len(completed), len(cancelled))
    for piece in pieces:
        most = max(most, len(piece.sources))
    if most > MAX_PIECES:
        raise BrokerError(
            Fault.INVALID_RECORD, f"a batch can schedule or complete messages of at most {MAX_PIECES} kinds"
        )


def _span(piece: _Piece) -> int:
    return piece.header.last_offset_delta + 1


def _places(pieces: Sequence[_Piece]) -> list[int]:
    """The offsets that the pieces are going to begin at."""
    if len(pieces) == 1:
        return [pieces[0].target.next_offset]
    ends: dict[Partition, int] = {}
    found = []
    for piece in pieces:
        first = ends.get(piece.target, piece.target.next_offset)
        ends[piece.target] = first + _span(piece)
        found.append(first)
    return found


def _runs(places: Sequence[Message]) -> tuple[SourceRun, ...]:
    """Of offsets that follow each other, one run."""
    if not places:
        return ()
    runs: list[list[int]] = []
    last = [-1, -1, -1, 0]
    for number, index, offset in places:
        if last[2] + last[3] == offset and last[1] == index and last[0] == number:
            last[3] += 1
        else:
            last = [number, index, offset, 1]
            runs.append(last)
    return tuple(SourceRun(*run) for run in runs)
