"""What became of a message, from provenance alone (B05).

From the message one goes back to where it entered the broker: the sources of its frame, and the header that names the
place it was first consumed from. From there the key index leads forward: to the frames that name a place as their
source, as negatively acknowledged, or as asked about.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.records.batches import iter_records
from halfmoon.core.records.record_codec import Record
from halfmoon.core.steps import Steps
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.core.storage.frame_reading import WholeFrame
from halfmoon.core.storage.storage import Frames
from halfmoon.schema.provenance import SourceRun
from halfmoon.services.keyindex.entries import settled_places
from halfmoon.services.keyindex.questions import Describes, Event, What
from halfmoon.services.keyindex.service import KeyIndex
from halfmoon.services.keyindex.stretch import block_hash

MOST_EVENTS = 1_000
"""Of one history; a message can be negatively acknowledged for ever."""
GROUP_PARTS = 1_000
"""Frames of a frame group that are looked at for one record."""
ORIGIN_HEADER = "ORIGIN_MESSAGE_ID"
"""Where a message that was negatively acknowledged was first consumed."""
REASON_HEADER = "halfmoon.reason"
"""Why a message became a dead letter."""

HIDDEN = Event("hidden")

_PLACE = re.compile(rb"([a-zA-Z0-9._-]{1,249})/([0-9]{1,9})/([0-9]{1,18})")


class Place(NamedTuple):
    topic_number: int
    partition: int
    offset: int


class Standing(NamedTuple):
    """A message in the frame that it stands in, and the waiting message that it was made from."""

    whole: WholeFrame
    record: Record
    source: Place | None


class Traced(NamedTuple):
    """The histories of some messages as one, and where they stood on the way."""

    events: tuple[Event, ...]
    places: tuple[Place, ...]


class History:
    """Of single messages. Ask in the loop."""

    def __init__(self, key_index: KeyIndex, catalog: Catalog, reader: PartitionReader) -> None:
        self._key_index = key_index
        self._catalog = catalog
        self._reader = reader

    def standing(self, place: Place) -> Steps[Standing | None]:
        """A message in its frame; None where it is gone."""
        partition = self._catalog.partition(place.topic_number, place.partition)
        if partition is None or not place.offset < partition.queue.end_offset:
            return None
        queue = partition.queue
        found = [] if queue.damage_at(place.offset) else queue.places(place.offset, 1, min_one=True)
        if not found:
            return None
        frames = self._reader.frames()
        standing: Standing | None = yield lambda: _standing(frames.before(found[0][0]), place)
        return standing

    def of(self, place: Place, describes: Describes) -> Steps[tuple[Event, ...]]:
        """What `describes` refuses is hidden."""
        return (yield from self.trace([place], describes)).events

    def trace(self, places: Iterable[Place], describes: Describes) -> Steps[Traced]:
        """Of messages, or of one that has stood at all of these places, in several logs."""
        roots = []
        for place in places:
            roots.append((yield from self._root(place)))
        events: dict[tuple[int, Place], Event] = {}
        """Frame's position and the message's place → what happened."""
        seen: dict[Place, str] = dict.fromkeys(roots, "")
        """And the group that handed the message back there, if one has."""
        names: set[bytes | None] = set()
        """Places where it may have been consumed first, as ORIGIN_HEADER names one of them."""
        ahead = list(seen)
        while ahead and len(events) < MOST_EVENTS:
            here = ahead.pop(0)
            own = yield from self.standing(here)
            names.add(f"{self._catalog.name_of(here.topic_number)}/{here.partition}/{here.offset}".encode())
            if own is not None:
                names.add(dict(own.record.headers).get(ORIGIN_HEADER))
                events[own.whole.frame.position, here] = self._stands(own, here, seen[here], describes)
            search = self._key_index.find([block_hash(*here)])
            frames = self._reader.frames()
            for whole, followed, group in (yield lambda: list(_naming(frames, search(), here, names))):  # noqa: B023
                if not self._counts(whole):
                    continue
                if followed is None:
                    events[whole.frame.position, here] = self._named(whole, here, group, describes)
                elif followed not in seen:
                    seen[followed] = group
                    ahead.append(followed)
        told = tuple(event for _, event in sorted(events.items(), key=lambda entry: entry[0][0]))
        return Traced(told, tuple(seen))

    def _counts(self, whole: WholeFrame) -> bool:
        """Whether a frame has not been moved: then there is another one that says the same."""
        frame = whole.frame
        partition = self._catalog.partition(frame.topic_number, frame.partition)
        return frame.kind != Kind.BATCH or partition is None or partition.stands_at(frame.base_offset, frame.position)

    def _root(self, place: Place) -> Steps[Place]:
        """Where a message came into the broker, as far back as can be told."""
        seen = {place}
        while True:
            found = yield from self.standing(place)
            if found is None:
                break
            before = found.source or self._place(dict(found.record.headers).get(ORIGIN_HEADER))
            if before is None or before in seen:
                break
            seen.add(before)
            place = before
        return place

    def _place(self, said: bytes | None) -> Place | None:
        match = _PLACE.fullmatch(said or b"")
        topic = None if match is None else self._catalog.by_name.get(match[1].decode())
        return None if match is None or topic is None else Place(topic.number, int(match[2]), int(match[3]))

    def _stands(self, standing: Standing, place: Place, group: str, describes: Describes) -> Event:
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
        others = [each.topic_number for each in (whole.target, said.range) if each is not None]
        if not self._may_tell(describes, [place.topic_number, *others], group):
            return HIDDEN
        if group:
            what, detail = "handed back", f"by {group}{', ' if detail else ''}{detail}"
        if reason is not None:
            what, detail = "given up", reason.decode("utf-8", "backslashreplace")
        return self._event(whole, what, place, due_ms, detail)

    def _named(self, whole: WholeFrame, place: Place, group: str, describes: Describes) -> Event:
        """What a frame says of a message that stands elsewhere."""
        if not self._may_tell(describes, [place.topic_number, whole.frame.topic_number], group):
            return HIDDEN
        if group:  # where it stands since then cannot be told
            return self._event(whole, "handed back", place, -1, f"by {group}")
        times = next((run.count for run in whole.provenance.attempts if _first(run) == place), 0)
        if times:
            asked = self._name(whole.frame.topic_number, whole.frame.partition)
            return self._event(whole, "asked about", place, -1, f"for the {times}. time, in {asked}")
        return self._event(whole, "ended", place, -1, "not to be delivered")

    def _may_tell(self, describes: Describes, topics: Iterable[int], group: str) -> bool:
        names = {self._catalog.name_of(number) for number in topics if number >= 0}
        return all(describes("topic", name) for name in names) and (not group or describes("group", group))

    def _event(self, whole: WholeFrame, what: What, place: Place, due_ms: int, detail: str) -> Event:
        name = self._catalog.name_of(place.topic_number)
        return Event(what, whole.frame.store_ms, name, place.partition, place.offset, due_ms, detail)

    def _name(self, topic_number: int, partition: int) -> str:
        return f"{self._catalog.name_of(topic_number)}-{partition}"


def _standing(whole: WholeFrame | None, place: Place) -> Standing | None:
    if whole is not None and _holds(whole.frame, place):
        for nth, record in enumerate(iter_records(whole.payload)):
            if whole.frame.base_offset + record.offset_delta == place.offset:
                return Standing(whole, record, _nth_of(whole.provenance.sources, nth))
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
    frames: Frames, positions: Sequence[int], place: Place, names: Collection[bytes | None]
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
            yield whole, _handed_back(frames, whole, names), said.sent_back.group
        nth = None if said.given_up is None else _index_in(said.given_up.runs, place)
        if said.given_up is not None and nth is not None:
            yield whole, _nth_place(whole, nth), said.given_up.group


def _nth_place(whole: WholeFrame, nth: int) -> Place | None:
    frame = whole.frame
    for at, record in enumerate(iter_records(whole.payload)):
        if at == nth:
            return Place(frame.topic_number, frame.partition, frame.base_offset + record.offset_delta)
    return None  # it is named behind those that records were made from: it is done with


def _handed_back(frames: Frames, whole: WholeFrame, names: Collection[bytes | None]) -> Place | None:
    """Where in a frame group, which begins with this frame, the message stands that was first consumed at one of the
    places of these names."""
    each: WholeFrame | None = whole
    for _ in range(min(GROUP_PARTS, whole.frame.parts)):
        if each is None:
            break
        for record in iter_records(each.payload):
            origin = dict(record.headers).get(ORIGIN_HEADER)
            if origin is not None and origin in names:
                frame = each.frame
                return Place(frame.topic_number, frame.partition, frame.base_offset + record.offset_delta)
        each = frames.read(each.frame.end)
    return None
