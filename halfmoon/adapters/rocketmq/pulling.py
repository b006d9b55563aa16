"""Pulling: hand out what a filter lets through, or hold the request until there is something (B04, B11, B14).

A pull is answered at once where something was found, or where so much was passed over without a match that the client
shall ask again from further on. Else, if it may be held, it waits on its queue; what arrives is looked at with its
filter, and only a match ends the wait. At its deadline it is answered with what there is, which is nothing
(org.apache.rocketmq.broker.processor.PullMessageProcessor, longpolling.PullRequestHoldService).
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from halfmoon.adapters.rocketmq.answers import Answer, refusal
from halfmoon.adapters.rocketmq.confirming import when_certain
from halfmoon.adapters.rocketmq.expired import AT_ONCE, AT_ONCE_BYTES, ExpiredMessage, has_dead_letters, nack_expired
from halfmoon.adapters.rocketmq.filters import Filter
from halfmoon.adapters.rocketmq.open_batches import OpenBatch, in_thread
from halfmoon.adapters.rocketmq.registry import Call
from halfmoon.adapters.rocketmq.windows import READ_BYTES, Key, Window
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.hold import Held
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.services.common.leaving_out import LeavingOut
from halfmoon.services.expiry.service import Expiry

log: Final = logging.getLogger("halfmoon.rocketmq")

MAX_HELD: Final = 4_096
"""Pulls of one connection that may wait: one message may wake them all."""
MAX_HELD_CHARACTERS: Final = 128 << 10
"""Of the expressions that they wait with. A compiled one takes up to a hundred times as much."""
WINDOWS_AT_ONCE: Final = 4
"""So many windows without a match are looked at before a pull is answered."""

FOUND, NO_MATCH, NOTHING, MOVED = "FOUND", "NO_MATCHED_MESSAGE", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"
TOO_SMALL: Final = "OFFSET_TOO_SMALL"


class Pull:
    """One request. `suspend_ms` 0: it is not held."""

    __slots__ = (
        "_call",
        "_deadline_ms",
        "_dealt_with",
        "_group",
        "_held",
        "_key",
        "_most",
        "_next",
        "_now_ms",
        "_offset",
        "_partition",
        "_tries",
    )

    def __init__(
        self,
        call: Call,
        group: str,
        partition: Partition,
        offset: int,
        most: int,
        wanted: Filter | None,
        suspend_ms: int,
    ) -> None:
        self._call = call
        self._group = group
        self._partition = partition
        self._offset = offset
        self._next = offset
        """What lies below was looked at, without a match."""
        self._most = max(1, min(most, call.node.settings.pull_messages))
        self._key: Key = (partition, wanted, call.node.writer_for(call.connection))
        self._deadline_ms = call.core.clock.mono_ms() + suspend_ms if suspend_ms > 0 else 0
        self._held: Held | None = None
        self._tries = 0
        self._dealt_with: set[int] = set()
        """Offsets of expired messages whose dead letters are durable."""
        self._now_ms = 0
        """What has expired by then is passed over."""

    def run(self) -> Answer | None:
        """The answer, or None: it comes later."""
        try:
            return self._run()
        except BrokerError as error:
            if error.fault is Fault.CORRUPT_MESSAGE:
                return self._behind_damage()
            if error.fault is Fault.OFFSET_OUT_OF_RANGE:  # the start has moved meanwhile
                return self._moved(TOO_SMALL, self._partition.start_offset)
            return refusal(error)

    def _run(self) -> Answer | None:
        partition = self._partition
        if self._call.core.catalog.by_queue_number.get(partition.queue_number) is not partition:
            return Answer(Code.TOPIC_NOT_EXIST, remark="the topic was deleted")
        expiry = self._call.services.find(Expiry)
        self._now_ms = 0 if expiry is None else expiry.now_ms()
        reset = self._call.node.take_reset(self._group, partition)
        if reset is not None:
            return self._answer(Code.PULL_OFFSET_MOVED, "OFFSET_RESET", reset)
        start, end = partition.start_offset, partition.stable_offset
        if not start <= self._offset <= end:
            if start == end == 0:
                return self._moved("NO_MESSAGE_IN_QUEUE", 0)
            low = self._offset < start
            return self._moved(TOO_SMALL if low else MOVED, start if low else end)
        while self._next < end:
            if self._tries >= WINDOWS_AT_ONCE:
                return self._answer(Code.PULL_RETRY_IMMEDIATELY, NO_MATCH, self._next)
            window = self._window(self._next)
            if window is None:
                return None
            if window.ends and expiry is not None and self._dead_letter(window, expiry):
                return None
            found = self._take(window)
            if found is not None:
                return found
            self._next = window.next
            self._tries += 1
        if self._hold():
            return None
        if self._next > self._offset:
            return self._answer(Code.PULL_RETRY_IMMEDIATELY, NO_MATCH, self._next)
        return self._answer(Code.PULL_NOT_FOUND, NOTHING, self._next)

    @property
    def _read_bytes(self) -> int:
        """Of a queue for a window: what an answer may hold is read at once."""
        return max(READ_BYTES, self._call.node.settings.pull_bytes)

    def _window(self, offset: int) -> Window | None:
        """What is to be read from `offset` on; None where it comes later, and the pull goes on by itself then."""
        windows = self._call.node.windows
        window = windows.find(self._key, offset)
        if window is not None:
            return window
        batches = windows.batches(self._partition, offset, self._read_bytes)
        work = in_thread(self._key[1], batches)
        if work is None:
            assert isinstance(batches, list)
            opened: list[OpenBatch] = batches
            return windows.make(self._key, offset, opened)
        self._call.connection.works_out(1)
        self._call.connection.in_thread(work, self._loaded)
        return None

    def _loaded(self, batches: object, error: BaseException | None) -> None:
        self._call.connection.works_out(-1)
        if error is not None:
            log.error("event=pull_failed partition=%r offset=%d", self._partition, self._next, exc_info=error)
            self._call.reply(Answer(Code.SYSTEM_ERROR, remark=f"reading failed: {error}"))
            return
        assert isinstance(batches, list)
        opened: list[OpenBatch] = batches
        windows = self._call.node.windows
        window = windows.make(self._key, self._next, opened)
        if window.offsets:
            windows.keep(self._key, window)  # where `run` finds it
        else:
            self._next = window.next
            self._tries += 1
        self._go_on()

    def _go_on(self) -> None:
        try:
            answer = self.run()
        except Exception:
            # A programmer's error. It must not reach who called us: others are still to be woken.
            log.exception("event=pull_failed")
            answer = Answer(Code.SYSTEM_ERROR, remark="the pull failed; see the broker's log")
        if answer is not None:
            self._call.reply(answer)

    def _take(self, window: Window) -> Answer | None:
        """Messages of a window from where the pull is; None if there are none."""
        offsets, starts = window.offsets, window.starts
        begin = low = bisect_left(offsets, self._next)
        if window.marked or window.ends:
            low = self._first_delivered(window, low)
        if low == len(offsets):
            self._count_expired(window, begin, low)
            return None
        high = min(low + self._most, len(offsets))
        most_bytes = self._call.node.settings.pull_bytes
        if starts[high] - starts[low] > most_bytes:
            high = max(low + 1, bisect_right(starts, starts[low] + most_bytes, low, high) - 1)
        if high < len(offsets):
            self._call.node.windows.keep(self._key, window)
            after = offsets[high - 1] + 1
        else:
            after = window.next
        left_out = self._left_out(window, low, high) if window.marked or window.ends else []
        self._count_expired(window, begin, high)
        self._call.node.pulled(high - low - len(left_out))
        data = memoryview(window.data)
        body = [
            data[starts[begin] : starts[end]]
            for begin, end in zip([low, *(at + 1 for at in left_out)], [*left_out, high], strict=True)
            if begin < end
        ]
        core, size = self._call.core, sum(map(len, body))
        core.catalog.traffic.sent(self._partition.topic, size)
        for told in core.on_fetched:
            told(self._partition.topic.name, self._partition.index, size)
        return self._answer(Code.SUCCESS, FOUND, after, body)

    def _left_out(self, window: Window, low: int, high: int) -> list[int]:
        """Which of these messages plugins leave out now, or have expired; ascending."""
        leaving_out, topic = self._call.services.find(LeavingOut), self._partition.topic.name
        left_out = [
            at
            for at, record in window.marked
            if low <= at < high and leaving_out is not None and not leaving_out.delivers(topic, record)
        ]
        expired = [each.row for each in window.ends if low <= each.row < high and each.expires_ms <= self._now_ms]
        return sorted({*left_out, *expired}) if expired else left_out

    def _count_expired(self, window: Window, low: int, high: int) -> None:
        """Those of these messages that are passed over without a dead letter."""
        expiry = self._call.services.find(Expiry)
        if window.ends and expiry is not None:
            rows = [each.row for each in window.ends if low <= each.row < high and each.expires_ms <= self._now_ms]
            expiry.count("pull", sum(window.offsets[row] not in self._dealt_with for row in rows))

    def _dead_letter(self, window: Window, expiry: Expiry) -> bool:
        """Have some expired messages dead-lettered, and go on when that is durable. Whether there are any."""
        if not has_dead_letters(self._call.node, self._group):
            return False
        messages: list[ExpiredMessage] = []
        left = AT_ONCE_BYTES
        for row, expires_ms, topic, record in window.ends:
            offset = window.offsets[row]
            if offset < self._next or expires_ms > self._now_ms or offset in self._dealt_with or record is None:
                continue
            if len(messages) == AT_ONCE or not expiry.dead_letters(topic):
                continue
            left -= record.end - record.start
            if messages and left < 0:
                break
            messages.append(ExpiredMessage(offset, record, expires_ms))
        if not messages:
            return False
        offsets = [each.offset for each in messages]
        self._call.connection.works_out(1)
        nack_expired(
            self._call.node, self._group, self._partition, messages, lambda error: self._dead_lettered(offsets, error)
        )
        return True

    def _dead_lettered(self, offsets: Sequence[int], error: BrokerError | None) -> None:
        self._call.connection.works_out(-1)
        if error is not None:
            self._call.reply(refusal(error))
            return
        self._dealt_with.update(offsets)
        self._go_on()

    def _first_delivered(self, window: Window, low: int) -> int:
        """The first message from `low` on that is not left out."""
        left_out = set(self._left_out(window, low, len(window.offsets)))
        return next((at for at in range(low, len(window.offsets)) if at not in left_out), len(window.offsets))

    def _answer(self, code: Code, status: str, after: int, body: list[memoryview] | None = None) -> Answer:
        partition = self._partition
        fields = {
            "nextBeginOffset": str(after),
            "minOffset": str(partition.start_offset),
            "maxOffset": str(partition.stable_offset),
            "suggestWhichBrokerId": "0",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }
        return Answer(code, fields, status, body or b"")

    def _moved(self, status: str, after: int) -> Answer | None:
        """The client's offset is not in the queue: it goes on elsewhere, and commits that. Another node may have the
        queue, and more of it, so this must be true now."""
        return when_certain(self._call, self._answer(Code.PULL_OFFSET_MOVED, status, after))

    def _behind_damage(self) -> Answer:
        """What the disk has lost is passed over: the client goes on behind it."""
        lost = next(high for low, high in self._partition.queue.damaged if low <= self._next < high)
        return self._answer(Code.PULL_OFFSET_MOVED, "OFFSET_FOUND_NULL", lost)

    # Waiting.

    def _hold(self) -> bool:
        """Whether it waits for messages now."""
        core = self._call.core
        mono_ms = core.clock.mono_ms()
        connection = self._call.connection
        characters = 0 if self._key[1] is None else len(self._key[1].expression)
        if (
            self._deadline_ms <= mono_ms
            or connection.held >= MAX_HELD
            or connection.held_characters + characters > MAX_HELD_CHARACTERS
        ):
            return False
        connection.held += 1
        connection.held_characters += characters
        self._call.forget_content()
        held = self._held = Held(
            partitions=(self._partition,),
            missing_bytes=1,
            deadline_ms=self._deadline_ms,
            owner=connection.owner,
            wake=self._woken,
            match=None if self._key[1] is None else self._matches,
            ready=self._is_ready,
        )
        core.hold.park(held, mono_ms)
        return True

    def _is_ready(self) -> bool:
        return self._partition.stable_offset > self._next

    def _matches(self, partition: object, arrival: object) -> bool:
        """Whether something has arrived that the filter lets through, or that a thread has to look at."""
        windows = self._call.node.windows
        try:
            for _ in range(WINDOWS_AT_ONCE):
                if self._next >= self._partition.stable_offset:
                    return False
                batches = windows.batches(self._partition, self._next, self._read_bytes)
                if in_thread(self._key[1], batches) is not None:
                    return True
                assert isinstance(batches, list)
                opened: list[OpenBatch] = batches
                window = windows.make(self._key, self._next, opened)
                if window.offsets:
                    windows.keep(self._key, window)
                    return True
                self._next = window.next
        except BrokerError:
            pass  # it is the answer's business
        return True

    def _woken(self) -> None:
        held, self._held = self._held, None
        connection = self._call.connection
        connection.held -= 1
        connection.held_characters -= 0 if self._key[1] is None else len(self._key[1].expression)
        # What has come may be less than the hold service thought, as after a deletion; but the wait is over (B11).
        if held is not None and self._call.core.clock.mono_ms() >= held.deadline_ms:
            self._deadline_ms = 0
        self._tries = 0
        try:  # it may have lost a right while it waited
            self._call.check("read", "topic", self._partition.topic.name)
            self._call.check("read", "group", self._group)
        except BrokerError as error:
            self._call.reply(refusal(error))
        else:
            self._go_on()
