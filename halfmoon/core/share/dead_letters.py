"""Dead letters of share groups: what was rejected, or given out too often, is written to the group's dead-letter topic
once (KIP-1191).

A record that is owed a letter stays in its share partition as *rejected* or *exhausted*, which is in the log with the
acknowledgement that said so. A mover (core/relay.py) reads it and appends the letter, with the proof of what it was
made from in the same frame (provenance, form 6), which settles it. So what is owed is a function of the log, and a
crash anywhere makes neither a second letter nor loses one.

A letter has key, value, timestamp and headers of its record, and says where it comes from twice: by the headers of
KIP-1191 (`ShareGroupDLQRecordHelper`), and by those of all other dead letters here (plugins/store/retry.py), so that
`halfmoon dlq` shows and replays it like them. Its partition is the source's, modulo the number there are.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.provenance import GivenUp, SourceRun
from halfmoon.core.record_codec import Headers, Record
from halfmoon.core.records import build_batch, iter_records, parse_header
from halfmoon.core.share.ledger import EXHAUSTED, Run

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog import Partition
    from halfmoon.core.relay import Load
    from halfmoon.core.share.service import Part, ShareService

AT_ONCE = 200
"""Letters in one batch at most, …"""
AT_ONCE_BYTES = 1 << 20
"""… made of so many bytes of the log."""

PREFIX = "__dlq.errors."
MESSAGES = {False: "Offset rejected by client.", True: "Offset delivery count exceeded the threshold."}
"""What KIP-1191's header `message` says, by whether the record was exhausted."""
TIMES, TOPIC, ORIGIN, REASON = "RECONSUME_TIME", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "halfmoon.reason"

Row = tuple[bytes | None, bytes | None, int, Headers]


class DeadLetters:
    def __init__(self, broker: Broker, shares: ShareService) -> None:
        self._broker = broker
        self._shares = shares
        self.written = 0
        self.unwritten = 0
        """Records of which no letter could be written."""

    def __str__(self) -> str:
        return "dead letters of share groups"

    def run(self) -> Generator[Load | None, Any, None]:
        shares = self._shares
        for group in shares.groups_at_work():
            for part in shares.parts(group):
                while run := part.first_owed():
                    yield from self._bury(part, run._replace(end=min(run.end, run.first + AT_ONCE)))
                    yield None

    def _bury(self, part: Part, run: Run) -> Generator[Load | None, Any, None]:
        """Write the letters of some records that stand together, or of the first of them."""
        group, partition = part.place
        options = self._shares.options(group)
        if run.first < partition.start_offset:
            self._give_up(part, run.first, min(run.end, partition.start_offset), "its records are gone")
            return
        if partition.queue.damage_at(run.first):
            self._give_up(part, run.first, run.first + 1, "its records are lost to a damaged disk")
            return
        rows = partition.queue.rows_upto(run.first, run.end, AT_ONCE_BYTES)
        read = self._broker.reader.read([(position, length) for _, _, position, length in rows])
        slices = read.slices
        if read.cold is not None:
            slices = yield read.cold
        end = min(run.end, rows[-1][0] + rows[-1][1]) if rows else run.end
        records = yield lambda: _records(slices, run.first, end)
        if self._shares.known(group, partition) is not part or part.start > run.first:
            return  # the group was reset meanwhile
        letters: list[Row] = []
        runs: list[SourceRun] = []
        number = partition.topic.number
        for offset, record in records:
            letters.append(letter(group, partition, offset, record, run, copy=options.copy_records))
            if runs and runs[-1].first_offset + runs[-1].count == offset:
                runs[-1] = SourceRun(number, partition.index, runs[-1].first_offset, runs[-1].count + 1)
            else:
                runs.append(SourceRun(number, partition.index, offset, 1))
        if not letters or not options.dead_letter_topic:
            self._give_up(part, run.first, end, "no letters are wanted" if letters else "there are no such records")
            return
        try:
            target = self._target(options.dead_letter_topic, partition)
        except BrokerError as error:
            if error.fault in (Fault.KAFKA_STORAGE_ERROR, Fault.INVALID_PARTITIONS):
                raise  # this may pass
            self._give_up(part, run.first, end, str(error))
            return
        if target.topic is partition.topic:
            self._give_up(part, run.first, end, "they would come to where they come from")
            return
        self._broker.append_relayed(target, bytearray(build_batch(letters)), given_up=GivenUp(group, tuple(runs)))
        self.written += len(letters)
        self._shares.buried(part, run.first, end)

    def _give_up(self, part: Part, first: int, end: int, reason: str) -> None:
        self._broker.logger.error(
            "event=no_dead_letter group=%s partition=%r first=%d count=%d reason=%s",
            part.place.group, part.place.partition, first, end - first, reason,
        )  # fmt: skip
        self._shares.bury_unwritten(part, first, end)
        self.unwritten += end - first

    def _target(self, name: str, source: Partition) -> Partition:
        topic = self._broker.first_partition(name).topic
        return topic.partitions[source.index % len(topic.partitions)]


def _records(slices: Sequence[memoryview | bytes], first: int, end: int) -> list[tuple[int, Record]]:
    """In a thread: batches may have to be decompressed. What cannot be read is left out, as nobody could read it."""
    found = []
    for piece in slices:
        base = parse_header(piece).base_offset
        with suppress(BrokerError):
            for record in iter_records(piece, created=True):
                if first <= base + record.offset_delta < end:
                    found.append((base + record.offset_delta, record))
    return found


def letter(group: str, partition: Partition, offset: int, record: Record, run: Run, *, copy: bool) -> Row:
    """The dead letter of a record; without `copy` only what KIP-1191 puts in it then: where it stands."""
    topic = partition.topic.name
    exhausted = run.state == EXHAUSTED
    said = {
        "topic": topic,
        "partition": str(partition.index),
        "offset": str(offset),
        "group": group,
        "delivery.count": str(run.deliveries),
        "message": MESSAGES[exhausted],
    }
    reason = (
        f"given out {run.deliveries} times" if exhausted else f"rejected when given out for the {run.deliveries}. time"
    )
    headers: list[tuple[str, bytes | None]] = []
    if copy:
        headers += [
            header
            for header in record.headers
            if not header[0].startswith((PREFIX, "halfmoon.")) and header[0] != TIMES
        ]
    names = {name for name, _ in headers}
    if TOPIC not in names and ORIGIN not in names:
        headers += [(TOPIC, topic.encode()), (ORIGIN, f"{topic}/{partition.index}/{offset}".encode())]
    headers += [(PREFIX + name, content.encode()) for name, content in said.items()]
    headers += [(TIMES, str(run.deliveries).encode()), (REASON, reason.encode())]
    key, value = (record.key, record.value) if copy else (None, None)
    return key, value, record.timestamp, tuple(headers)
