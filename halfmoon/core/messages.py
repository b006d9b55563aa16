"""Finding messages: by a key, by their place, and what became of one (B05).

What is asked for is worked out in steps: a generator that yields functions for a thread, since they read from the disk,
and is sent what they return; its own return value is the answer.

A message's *history* is read from provenance alone. From the message one goes back to where it entered the broker: the
sources of the frame it stands in, and the header that names the place it was first consumed from. From there the key
index leads forward: to the frames that name a place as their source, as handed back, or as looked at.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from msgspec import Struct

from halfmoon.core import record_codec
from halfmoon.core.batch_header import TIMESTAMP_TYPE
from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.frame import Frame, Kind
from halfmoon.core.frame_reading import FrameReader, WholeFrame
from halfmoon.core.key_file import block_hash, key_hash
from halfmoon.core.key_index import LAST_MS, settled_places
from halfmoon.core.keys import keys_of
from halfmoon.core.provenance import SourceRun
from halfmoon.core.record_codec import Record
from halfmoon.core.records import batch_body, iter_records, parse_header

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.key_index import KeyIndex
    from halfmoon.core.relay import Load
    from halfmoon.core.topic_configs import TopicRules

MOST_FOUND = 10_000
"""Messages that one question is answered with."""
MOST_BYTES = 8 << 20
"""Keys, values and headers of all of them together."""
MOST_EVENTS = 1_000
"""Of one history; a message can be handed back for ever."""
GROUP_PARTS = 1_000
"""Frames of a frame group that are looked at for one record."""
ORIGIN_HEADER = "ORIGIN_MESSAGE_ID"
"""Where a message that was handed back was first consumed (plugins/store/retry.py)."""
REASON_HEADER = "halfmoon.reason"
"""Why a message was given up."""

_PLACE = re.compile(rb"([a-zA-Z0-9._-]{1,249})/([0-9]{1,9})/([0-9]{1,18})")

AnswerT = TypeVar("AnswerT")
Steps = Generator["Load", Any, AnswerT]

What = Literal["stored", "waits", "delivered", "moved", "copied", "handed back", "given up", "asked about", "ended"]


class Found(Struct, frozen=True):
    """A message. Header names that are no UTF-8 are written with backslashes."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Unix ms."""
    timestamp_type: int
    """0 CreateTime, 1 LogAppendTime."""
    store_ms: int
    """When the broker stored it (Unix ms)."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    waits_for: str | None = None
    """Of a message that waits, or has: `TOPIC-PARTITION` that it goes to."""
    due_ms: int = -1
    """When it is due, or is to be decided about (Unix ms); −1: it does not wait."""
    ended: bool = False
    """It has waited here and is done with: delivered, cancelled, rolled back, …"""


class Event(Struct, frozen=True):
    """Something that happened to a message, and where it stood then."""

    at_ms: int
    """By the broker's clock (Unix ms)."""
    what: What
    topic: str
    partition: int
    offset: int
    due_ms: int = -1
    """Of one that waits."""
    detail: str = ""


class Shown(Struct, frozen=True):
    message: Found
    history: tuple[Event, ...]
    """In order of time."""


class Results(Struct, frozen=True):
    messages: tuple[Found, ...]
    """The newest first."""
    more: bool
    """There are others, older ones."""
    behind_bytes: int
    """So much of the log is not in the index yet: messages in it are not found."""


class Find(Struct, frozen=True, tag="find", forbid_unknown_fields=True):
    """A question: as `Messages.find`."""

    topic: str
    key: bytes
    from_ms: int = 0
    to_ms: int = LAST_MS
    most: int = 100
    ended: bool = False


class Show(Struct, frozen=True, tag="show", forbid_unknown_fields=True):
    """A question: as `Messages.show`."""

    topic: str
    partition: int
    offset: int


class Answer(Struct, frozen=True, omit_defaults=True):
    """One of the three."""

    results: Results | None = None
    shown: Shown | None = None
    fault: str = ""
    """The name of a `Fault`."""
    message: str = ""


class Place(NamedTuple):
    topic_number: int
    partition: int
    offset: int


class _Standing(NamedTuple):
    """A message in the frame that it stands in, and the waiting message that it was made from."""

    whole: WholeFrame
    record: Record
    source: Place | None


class Messages:
    """The questions. Ask in the loop; what they need of the broker is looked up between their steps."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ask(self, question: Find | Show) -> Steps[Results | Shown]:
        """Raises BrokerError."""
        topic = self._broker.topic(question.topic)
        if topic is None:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{question.topic}'")
        if isinstance(question, Find):
            if not question.key or question.most < 1:
                raise BrokerError(Fault.INVALID_REQUEST, "a key and a number of messages, at least one, are asked for")
            times = {"from_ms": question.from_ms, "to_ms": question.to_ms}
            return (yield from self.find(topic, question.key, most=question.most, ended=question.ended, **times))
        if not 0 <= question.partition < len(topic.partitions):
            raise BrokerError(
                Fault.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic.name}' has no partition {question.partition}"
            )
        return (yield from self.show(topic.partitions[question.partition], question.offset))

    def find(
        self,
        topic: Topic,
        key: bytes,
        *,
        from_ms: int = 0,
        to_ms: int = LAST_MS,
        most: int = 100,
        ended: bool = False,
    ) -> Steps[Results]:
        """The messages of a topic, or on their way to it, that have this key and were stored between the two times
        (Unix ms, inclusive). With `ended` also what has waited for a time and is done with, as long as it is in the
        log."""
        index: KeyIndex = self._broker.key_index
        behind = index.behind_bytes
        search = index.find([key_hash(topic.number, key)], from_ms, to_ms)
        frames = FrameReader(self._broker.log)
        most = min(most, MOST_FOUND)

        def look_up() -> Results:
            found: list[Found] = []
            size = 0
            for position in search():
                whole = frames.read(position)
                if whole is None or not self._concerns(whole, topic) or not from_ms <= whole.frame.store_ms <= to_ms:
                    continue
                try:
                    records = list(_records_with(whole, key, topic.rules))
                except BrokerError:  # nobody has looked into this batch yet, and it is none
                    continue
                for record in reversed(records):
                    message = self._message(whole, record)
                    if message is None or (message.ended and not ended):
                        continue
                    size += record.end - record.start
                    if len(found) == most or (found and size > MOST_BYTES):
                        return Results(tuple(found), True, behind)
                    found.append(message)
            return Results(tuple(found), False, behind)

        results: Results = yield look_up
        return results

    def _concerns(self, whole: WholeFrame, topic: Topic) -> bool:
        target = whole.target
        number = whole.frame.topic_number if target is None else target.topic_number
        return whole.frame.kind == Kind.BATCH and number == topic.number

    def _message(self, whole: WholeFrame, record: Record) -> Found | None:
        """As it stands there now; None where it has expired, or its producer's transaction is open or was aborted.
        Called in a thread: it only looks."""
        frame = whole.frame
        partition = self._broker.catalog.partition(frame.topic_number, frame.partition)
        offset = frame.base_offset + record.offset_delta
        header = parse_header(whole.payload)
        if partition is None or not partition.shows(header, offset, frame.position):
            return None
        pending, target = partition.pending, whole.target
        ended = pending is not None and offset not in pending
        return Found(
            partition.topic.name, partition.index, offset, record.timestamp,
            1 if header.attributes & TIMESTAMP_TYPE else 0, frame.store_ms,
            record.key, record.value, tuple((_readable(name), content) for name, content in record.headers),
            None if target is None else self._name(target.topic_number, target.partition),
            -1 if ended or pending is None else frame.due_ms, ended,
        )  # fmt: skip

    def _name(self, topic_number: int, partition: int) -> str:
        return f"{self._broker.catalog.name_of(topic_number)}-{partition}"

    def show(self, partition: Partition, offset: int) -> Steps[Shown]:
        """One message, by its place. Raises BrokerError(OFFSET_OUT_OF_RANGE) where there is none."""
        place = Place(partition.topic.number, partition.index, offset)
        found = yield from self._standing(place)
        message = None if found is None else self._message(found.whole, found.record)
        if message is None:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE, f"there is no message at offset {offset} of {partition!r}")
        return Shown(message, (yield from self._history(place)))

    # -- what became of it -------------------------------------------------------------------------------------------

    def _standing(self, place: Place) -> Steps[_Standing | None]:
        """A message in its frame; None where it is gone."""
        partition = self._broker.catalog.partition(place.topic_number, place.partition)
        if partition is None or not place.offset < partition.queue.end_offset:
            return None
        queue = partition.queue
        found = [] if queue.damage_at(place.offset) else queue.places(place.offset, 1, min_one=True)
        if not found:
            return None
        frames = FrameReader(self._broker.log)
        standing: _Standing | None = yield lambda: _standing(frames.before(found[0][0]), place)
        return standing

    def _history(self, place: Place) -> Steps[tuple[Event, ...]]:
        root, first_id = yield from self._root(place)
        events: dict[tuple[int, Place], Event] = {}
        """Frame's position and the message's place → what happened."""
        seen: dict[Place, str] = {root: ""}
        """And the group that handed the message back there, if one has."""
        ahead = [root]
        while ahead and len(events) < MOST_EVENTS:
            here = ahead.pop(0)
            own = yield from self._standing(here)
            if own is not None:
                events[own.whole.frame.position, here] = self._stands(own, here, seen[here])
            search = self._broker.key_index.find([block_hash(*here)])
            frames = FrameReader(self._broker.log)
            for whole, followed, group in (yield lambda: list(_naming(frames, search(), here, first_id))):  # noqa: B023
                if not self._counts(whole):
                    continue
                if followed is None:
                    events[whole.frame.position, here] = self._named(whole, here)
                elif followed not in seen:
                    seen[followed] = group
                    ahead.append(followed)
        return tuple(event for _, event in sorted(events.items(), key=lambda entry: entry[0][0]))

    def _counts(self, whole: WholeFrame) -> bool:
        """Whether a frame has not been moved: then there is another one that says the same."""
        frame = whole.frame
        partition = self._broker.catalog.partition(frame.topic_number, frame.partition)
        return frame.kind != Kind.BATCH or partition is None or partition.stands_at(frame.base_offset, frame.position)

    def _root(self, place: Place) -> Steps[tuple[Place, bytes]]:
        """Where a message came into the broker, as far back as can be told; and that place as a header names it."""
        seen = {place}
        while True:
            found = yield from self._standing(place)
            if found is None:
                break
            before = found.source or self._place(dict(found.record.headers).get(ORIGIN_HEADER))
            if before is None or before in seen:
                break
            seen.add(before)
            place = before
        name = self._broker.catalog.name_of(place.topic_number)
        return place, f"{name}/{place.partition}/{place.offset}".encode()

    def _place(self, said: bytes | None) -> Place | None:
        match = _PLACE.fullmatch(said or b"")
        topic = None if match is None else self._broker.topic(match[1].decode())
        return None if match is None or topic is None else Place(topic.number, int(match[2]), int(match[3]))

    def _stands(self, standing: _Standing, place: Place, group: str) -> Event:
        """What the frame that it stands in says of a message."""
        whole = standing.whole
        frame, said = whole.frame, whole.provenance
        what: What = "delivered" if said.sources else "stored"
        detail, due_ms = "", -1
        reason = dict(standing.record.headers).get(REASON_HEADER)
        if whole.target is not None:
            what, due_ms = ("moved" if said.sources else "waits"), frame.due_ms
            detail = f"for {self._name(whole.target.topic_number, whole.target.partition)}"
        elif said.range is not None:
            what, of = "copied", said.range
            detail = f"from {self._name(of.topic_number, of.partition)}, [{of.from_offset}:{of.next_offset}]"
        if group:
            what, detail = "handed back", f"by {group}{', ' if detail else ''}{detail}"
        if reason is not None:
            what, detail = "given up", reason.decode("utf-8", "backslashreplace")
        return self._event(whole, what, place, due_ms, detail)

    def _named(self, whole: WholeFrame, place: Place) -> Event:
        """What a frame says of a message that stands elsewhere."""
        times = next((run.count for run in whole.provenance.attempts if _first(run) == place), 0)
        if times:
            asked = self._name(whole.frame.topic_number, whole.frame.partition)
            return self._event(whole, "asked about", place, -1, f"for the {times}. time, in {asked}")
        return self._event(whole, "ended", place, -1, "not to be delivered")

    def _event(self, whole: WholeFrame, what: What, place: Place, due_ms: int, detail: str) -> Event:
        name = self._broker.catalog.name_of(place.topic_number)
        return Event(whole.frame.store_ms, what, name, place.partition, place.offset, due_ms, detail)


def _readable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _records_with(whole: WholeFrame, key: bytes, rules: TopicRules) -> Iterator[Record]:
    """The records of a batch that have this key; only those are read that hold its bytes."""
    header = parse_header(whole.payload)
    body = bytes(batch_body(whole.payload))
    append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE else None
    bounds = record_codec.walk(body, header.record_count)
    at = body.find(key)
    while at >= 0:
        index = bisect_right(bounds, at) - 1
        record = record_codec.read_one(body, bounds[index], index, header.base_timestamp, append_time)
        if key in keys_of(record, own_key=rules.key_index, headers=rules.headers_enabled):
            yield record
        at = body.find(key, bounds[index + 1])


def _standing(whole: WholeFrame | None, place: Place) -> _Standing | None:
    if whole is not None and _holds(whole.frame, place):
        for nth, record in enumerate(iter_records(whole.payload)):
            if whole.frame.base_offset + record.offset_delta == place.offset:
                return _Standing(whole, record, _nth_of(whole.provenance.sources, nth))
    return None


def _holds(frame: Frame, place: Place) -> bool:
    return (
        frame.kind == Kind.BATCH
        and (frame.topic_number, frame.partition) == place[:2]
        and 0 <= place.offset - frame.base_offset < frame.span
    )


def _first(run: SourceRun) -> Place:
    return Place(run.topic_number, run.partition, run.first_offset)


def _index_in(runs: Iterable[SourceRun], place: Place) -> int | None:
    """The how-manyeth of the messages of these runs, one after the other, stands at `place`."""
    passed = 0
    for run in runs:
        if (run.topic_number, run.partition) == place[:2] and 0 <= place.offset - run.first_offset < run.count:
            return passed + place.offset - run.first_offset
        passed += run.count
    return None


def _nth_of(runs: Iterable[SourceRun], nth: int) -> Place | None:
    """The place of the nth message of these runs, one after the other."""
    for run in runs:
        if nth < run.count:
            return Place(run.topic_number, run.partition, run.first_offset + nth)
        nth -= run.count
    return None


def _naming(
    frames: FrameReader, positions: Sequence[int], place: Place, first_id: bytes
) -> Iterator[tuple[WholeFrame, Place | None, str]]:
    """Frames that name the message at `place`, where it stands in them (None where it does not), and the group that
    has handed it back so, if one has."""
    for position in sorted(positions):
        whole = frames.read(position)
        if whole is None:
            continue
        said = whole.provenance
        if whole.frame.kind == Kind.CONTROL:
            if place in settled_places(whole.payload):
                yield whole, None, ""
            continue
        nth = _index_in(said.sources, place)
        if nth is not None:
            yield whole, _nth_place(whole, nth), ""
        if any(_first(run) == place for run in said.attempts):
            yield whole, None, ""
        if said.sent_back is not None and _index_in(said.sent_back.runs, place) is not None:
            yield whole, _handed_back(frames, whole, first_id), said.sent_back.group
        nth = None if said.given_up is None else _index_in(said.given_up.runs, place)
        if said.given_up is not None and nth is not None:
            yield whole, _nth_place(whole, nth), said.given_up.group


def _nth_place(whole: WholeFrame, nth: int) -> Place | None:
    frame = whole.frame
    for at, record in enumerate(iter_records(whole.payload)):
        if at == nth:
            return Place(frame.topic_number, frame.partition, frame.base_offset + record.offset_delta)
    return None  # it is named behind those that records were made from: it is done with


def _handed_back(frames: FrameReader, whole: WholeFrame, first_id: bytes) -> Place | None:
    """Where in a frame group, which begins with this frame, the message stands that was first consumed there."""
    each: WholeFrame | None = whole
    for _ in range(min(GROUP_PARTS, whole.frame.parts)):
        if each is None:
            break
        for record in iter_records(each.payload):
            if dict(record.headers).get(ORIGIN_HEADER) == first_id:
                frame = each.frame
                return Place(frame.topic_number, frame.partition, frame.base_offset + record.offset_delta)
        each = frames.read(each.frame.end)
    return None
