"""Cancelling delayed messages by their UNIQ_KEY (B30; RocketMQ: TIMER_DEL_UNIQKEY, recallMessage).

A cancel is a control record, which is true from then on; what delivers messages obeys it (halfmoon.plugin.moving:
WaitingMessages). Its messages are found here, with the key index. Once they are completed the cancel is removed; so
there are as many as have just come, however many messages wait.

One whose messages wait in a topic of a plugin that is off stays: whether it means them is for that plugin to say.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from halfmoon.plugin import FeatureContext
from halfmoon.plugin.moving import Feature, FrameReading, Load, WholeFrame, records_with
from halfmoon.plugins.store.delay import metrics
from halfmoon.plugins.store.delay.state import CancelsState
from halfmoon.schema import control

AT_ONCE = 2_000
"""Cancels that are looked up together."""
COMPLETED = 1_000
"""Messages that are completed between two pauses."""
AGAIN_MS = 50
"""The key index is asked again after so long, if it is behind."""

Cancel = tuple[int, bytes, int]
"""Topic number, UNIQ_KEY, log position below which it counts."""
Named = tuple[int, bytes]
"""Topic number, UNIQ_KEY."""
Place = tuple[int, int, int]
"""Topic number, partition, offset."""


class Found(NamedTuple):
    """A message that may wait, and what it is cancelled by."""

    place: Place
    named: Named


class Cancelling:
    """A relay task (halfmoon.plugin.moving.Mover): cancels whose messages are still to be found."""

    def __init__(self, ctx: FeatureContext) -> None:
        self._topics = ctx.topics
        self._writer = ctx.writer
        self._relays = ctx.relays
        self._clock = ctx.clock
        self._keys = ctx.keys
        self._waiting = ctx.waiting
        self._frames = ctx.frames
        self._state = ctx.state.section(CancelsState)
        self._left: set[Named] = set()
        """Cancels that stay, because the plugin of a message that they may mean is off."""

    def __str__(self) -> str:
        return "cancelling"

    def feature(self) -> Feature:
        return Feature(
            "delay",
            start=self._start,
            families=metrics.FAMILIES,
            read_metrics=partial(metrics.read, self._waiting),
        )

    def _start(self) -> None:
        self._relays.add(self, self)
        self._waiting.find_cancelled_by(lambda: self._relays.wake(self))

    def run(self) -> Generator[Load | None, Any, None]:
        while cancels := list(islice(self._open(), AT_ONCE)):
            if not self._keys.covers(max(at for _, _, at in cancels)):
                self._relays.wake_at(self, self._clock.mono_ms() + AGAIN_MS)
                return
            found, unread, problem = yield self._look_up(cancels)
            claimed = self._numbers(self._waiting.claimed_topics)
            places = [each.place for each in found if each.place[0] in claimed]
            left = {each.named for each in found if each.place[0] not in claimed and self._waits(each.place)}
            for at in range(0, len(places), COMPLETED):
                yield None
                while self._waiting.is_gathering:  # it has read messages that it is about to append
                    yield None
                self._waiting.complete(places[at : at + COMPLETED])
            self._left |= left
            now = self._state.cancels
            open_still = left | unread
            done = [(n, key) for n, key, at in cancels if (n, key) not in open_still and now.get(n, {}).get(key) == at]
            if done:
                self._writer.append_control(control.CancelsDone(done))
            if problem is not None:
                raise problem  # these are looked up again after a pause
            yield None

    def _open(self) -> Iterator[Cancel]:
        for number, keys in self._state.cancels.items():
            for key, at in keys.items():
                if (number, key) not in self._left:
                    yield number, key, at

    def _numbers(self, names: Iterable[str]) -> set[int]:
        """Of the topics that exist."""
        return {topic.number for name in names if (topic := self._topics.get(name)) is not None}

    def _waits(self, place: Place) -> bool:
        number, index, offset = place
        topic = self._topics.by_number(number)
        if topic is None or index >= len(topic.partitions):
            return False
        return offset in (topic.partitions[index].pending or ())

    def _look_up(self, cancels: Sequence[Cancel]) -> Load:
        """A function for a thread that gives the messages that may wait; topics and keys of which some cannot be read
        now, and why."""
        searches = [(self._keys.find_key(number, key), number, key, at) for number, key, at in cancels]
        frames: FrameReading = self._frames()
        decided = self._numbers(self._waiting.decided_topics)

        def look_up() -> tuple[list[Found], set[Named], OSError | None]:
            wanted: dict[int, set[Named]] = {}
            """Frame's position → topics and keys that it may have messages of."""
            for search, number, key, at in searches:
                for position in search():
                    if position < at:
                        wanted.setdefault(position, set()).add((number, key))
            found: list[Found] = []
            unread: set[Named] = set()
            problem: OSError | None = None
            for position, keys in wanted.items():
                try:
                    whole = frames.read(position)
                except OSError as error:
                    problem = error
                    unread |= keys
                    continue
                if whole is not None and whole.frame.topic_number not in decided:
                    found += _waiting(whole, keys)
            return found, unread, problem

        return look_up


def _waiting(whole: WholeFrame, keys: Iterable[Named]) -> Iterator[Found]:
    """The messages of a frame, if they wait, that go to one of these topics and have the key beside it."""
    frame, target = whole.frame, whole.target
    if target is None:
        return
    wanted = {key for topic_number, key in keys if topic_number == target.topic_number}
    for offset_delta, key in records_with(whole.payload, wanted):
        place = frame.topic_number, frame.partition, frame.base_offset + offset_delta
        yield Found(place, (target.topic_number, key))
