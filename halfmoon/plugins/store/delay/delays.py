"""Records that are to wait, taken out of the batch in which they were produced; those of one time are one batch.

plugin.py says what is promised. This is compiled (decision 0161), which a module with hooks cannot be.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from halfmoon.plugin import (
    BrokerError,
    Fault,
    Headers,
    HeaderSearch,
    Put,
    Record,
    Redirect,
    Redirected,
    build_in_slices,
    finish,
    format_duration,
    rewrite_in_slices,
)
from halfmoon.schema.lifetimes import CARRIED

LEVEL: Final = "DELAY"
SECONDS: Final = "TIMER_DELAY_SEC"
MILLISECONDS: Final = "TIMER_DELAY_MS"
TIME: Final = "TIMER_DELIVER_MS"
NAMES: Final[tuple[str, ...]] = (LEVEL, SECONDS, MILLISECONDS, TIME)
CANCEL: Final = "TIMER_DEL_UNIQKEY"
UNIQ_KEY: Final = "UNIQ_KEY"
LEVEL_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""RocketMQ: TopicValidator.RMQ_SYS_SCHEDULE_TOPIC."""
TIMER_TOPIC: Final = "halfmoon.timers"
IN_A_WHILE: Final = 0
AT_TIMES: Final = 1
"""Its queues: of delays, and of times of the wall clock (which versions before 0.2 had in the first queue, too)."""
DELAYED: Final = "halfmoon.delayed"
ORIGINAL_TIMESTAMP: Final = "halfmoon.original-timestamp"
ROUNDED_MS: Final = 1
"""The clock leaves out what is less than a ms; without this a delay could be shorter than asked for, by that much."""

MAX_KEY_BYTES = 1_000
"""Of a UNIQ_KEY that cancels."""
MOST_CANCELS = 10_000
"""Records that one batch cancels."""
MOST_RECORDS = 20_000
"""Records that one batch delays: twice as many as librdkafka sends in one. While it is taken apart they are objects."""
MOST_PIECES = 400
"""A batch becomes about so many at most: each takes some 20 µs when all are appended, in one turn of the loop."""
PIECE_RECORDS = 500
"""Records of one batch that wait for the same time."""

_search = HeaderSearch((*NAMES, CANCEL))
_NUMBER = re.compile(rb"-?[0-9]{1,18}")

Waiting = tuple[str, int, int]
"""Where a record waits, topic and partition, and until when."""

Row = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp, headers."""


class Delays:
    def __init__(self, levels_ms: list[int], max_delay_ms: int) -> None:
        self._levels_ms = levels_ms
        self._max_delay_ms = max_delay_ms

    def before_put(self, put: Put) -> memoryview | Redirect:
        """Take out the records that are to wait; those that wait for the same time in the same queue are one batch."""
        return finish(self.in_slices(put))

    def in_slices(self, put: Put) -> Generator[Any, Any, memoryview | Redirect]:
        """The same. Those of a batch with many times are few batches all the same: see `_merged`."""
        waiting: dict[Waiting, list[tuple[int, Row]]] = {}
        cancelled: dict[bytes, int] = {}
        """UNIQ_KEY → the last record that cancels it."""
        count = 0

        def change(index: int, record: Record) -> Record | None:
            nonlocal count
            headers = dict(record.headers)
            if headers.get(CANCEL):
                key = headers[CANCEL] or b""
                if len(key) > MAX_KEY_BYTES:
                    raise _refused(index, CANCEL, key, f"a key has {MAX_KEY_BYTES} bytes at most")
                cancelled[key] = index
                if len(cancelled) > MOST_CANCELS:
                    raise BrokerError(Fault.INVALID_RECORD, f"record {index}: it cancels the {MOST_CANCELS + 1}th")
                return None
            asked = _asked(index, headers)
            place = None if asked is None else self._place(index, *asked, put.now_ms)
            if asked is None or place is None:
                return record
            count += 1
            if count > MOST_RECORDS:
                raise BrokerError(Fault.INVALID_RECORD, f"record {index}: a batch delays {MOST_RECORDS} at most")
            row = record.key, record.value, record.timestamp, _delivered(record, *asked)
            waiting.setdefault(place, []).append((index, row))
            return None

        kept = yield from rewrite_in_slices(put.batch, _search, change)
        if not waiting and not cancelled:
            return put.batch
        left: dict[Waiting, list[Row]] = {}
        for at, (place, numbered) in enumerate(waiting.items()):
            rows = [row for index, row in numbered if not cancelled or index > cancelled.get(_key(row), -1)]
            if rows:
                left[place] = rows
            if len(numbered) > PIECE_RECORDS or at % PIECE_RECORDS == PIECE_RECORDS - 1:
                yield None
        redirected = yield from _pieces(left)
        return Redirect(kept, tuple(redirected), cancel=tuple(cancelled))

    def _place(self, index: int, name: str, number: int, now_ms: int) -> Waiting | None:
        """None: it does not wait. Raises BrokerError(INVALID_RECORD)."""
        if name == LEVEL:
            level = min(number, len(self._levels_ms))
            return LEVEL_TOPIC, level - 1, now_ms + self._levels_ms[level - 1] + ROUNDED_MS
        due_ms = number if name == TIME else now_ms + number * (1_000 if name == SECONDS else 1)
        if due_ms <= now_ms:
            return None
        if due_ms - now_ms > self._max_delay_ms:
            raise _refused(index, name, number, f"that is more than {format_duration(self._max_delay_ms)} from now")
        return TIMER_TOPIC, AT_TIMES if name == TIME else IN_A_WHILE, due_ms + (0 if name == TIME else ROUNDED_MS)


def _pieces(left: Mapping[Waiting, Sequence[Row]]) -> Generator[Any, Any, list[Redirected]]:
    """The batches in which these records wait."""
    pieces: list[Redirected] = []
    if len(left) > MOST_PIECES:
        left, merged = yield from _merged(left)
        pieces += merged
    for (topic, partition, due_ms), rows in left.items():
        for at in range(0, len(rows), PIECE_RECORDS):
            batch = yield from build_in_slices(rows[at : at + PIECE_RECORDS])
            pieces.append(Redirected(topic, partition, batch, due_ms))
        yield None
    return pieces


def _merged(
    left: Mapping[Waiting, Sequence[Row]],
) -> Generator[Any, Any, tuple[Mapping[Waiting, Sequence[Row]], list[Redirected]]]:
    """Records of different times as about MOST_PIECES batches, in the order in which they are due: each record has the
    time it is due for a timestamp (when it was produced, a header says). What is left is of a level, or so many of one
    time that they are a batch of their own."""
    share = -(-sum(map(len, left.values())) // MOST_PIECES)
    kept: dict[Waiting, Sequence[Row]] = {}
    merged: list[Redirected] = []
    for queue in (IN_A_WHILE, AT_TIMES):
        together: list[Row] = []
        for at, place in enumerate(sorted(place for place in left if place[:2] == (TIMER_TOPIC, queue))):
            rows, due_ms = left[place], place[2]
            if len(rows) >= share:
                kept[place] = rows
                continue
            together += [(key, value, due_ms, headers) for key, value, _, headers in rows]
            if len(together) >= share:
                merged.append((yield from _of_own_times(queue, together)))
                together = []
            if at % PIECE_RECORDS == PIECE_RECORDS - 1:
                yield None
        if together:
            merged.append((yield from _of_own_times(queue, together)))
    kept |= {place: rows for place, rows in left.items() if place[0] != TIMER_TOPIC}
    return kept, merged


def _of_own_times(queue: int, rows: Sequence[Row]) -> Generator[Any, Any, Redirected]:
    batch = yield from build_in_slices(rows)
    yield None
    return Redirected(TIMER_TOPIC, queue, batch, rows[0][2], own_times=True)


def _key(row: Row) -> bytes:
    return dict(row[-1]).get(UNIQ_KEY) or b""


def _asked(index: int, headers: Mapping[str, bytes | None]) -> tuple[str, int] | None:
    """The header that counts, if there is one: the first name in the list, and of that the last header, as in clients.

    Level 0 is no delay; then the others count (org.apache.rocketmq.broker.util.HookUtils.checkIfTimerMessage). Raises
    BrokerError(INVALID_RECORD).
    """
    for name in NAMES:
        content = headers.get(name)
        if content is None:
            continue
        if not _NUMBER.fullmatch(content):
            raise _refused(index, name, content, "expected a whole number")
        number = int(content)
        if name != LEVEL or number > 0:
            return name, number
    return None


def _delivered(record: Record, name: str, number: int) -> Headers:
    """The headers that it is delivered with."""
    kept = tuple(
        header
        for header in record.headers
        if header[0] not in NAMES and (not header[0].startswith("halfmoon.") or header[0] in CARRIED)
    )
    return (
        *kept,
        (DELAYED, f"{name}={number}".encode()),
        (ORIGINAL_TIMESTAMP, str(record.timestamp).encode()),
    )


def _refused(index: int, name: str, value: object, problem: str) -> BrokerError:
    return BrokerError(Fault.INVALID_RECORD, f"record {index}: header {name} is {str(value)[:40]}: {problem}")
