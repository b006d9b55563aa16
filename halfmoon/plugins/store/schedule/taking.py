"""Schedules that clients make with a record, and change with one: taken out of what they produce.

The record's key, value and headers, without those that speak of the schedule, are the message. What becomes of a batch
is one frame group: what stays of it, and what is written down of schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from halfmoon.plugin import (
    BrokerError,
    Fault,
    Headers,
    HeaderSearch,
    Put,
    Record,
    Redirect,
    Redirected,
    build_batch,
    finish,
    rewrite_in_slices,
)
from halfmoon.plugin.moving import Topic, Topics
from halfmoon.plugins.store.delay.delays import CANCEL, UNIQ_KEY
from halfmoon.plugins.store.delay.delays import NAMES as DELAYS
from halfmoon.plugins.store.schedule.book import Book
from halfmoon.plugins.store.schedule.records import TOPIC, Policy, Progress, Recurring, Row, of_end, of_schedule

CRON = "SCHEDULE_CRON"
STATE = "SCHEDULE_STATE"
NAME = "SCHEDULE_NAME"
ZONE = "SCHEDULE_ZONE"
MISSED = "SCHEDULE_MISSED"
PARTITION = "SCHEDULE_PARTITION"
FIXED = b"fixed"
"""In place of the partition: the client sends to the same one, always. RocketMQ's name queues by broker."""
NAMES = (CRON, STATE, NAME, ZONE, MISSED, PARTITION)
ACTIVE, PAUSED, CANCELLED = "active", "paused", "cancelled"
HALF = "TRAN_MSG"
RETRY_OF = "RETRY_OF"
BORN_HOST = "__BORNHOST"
"""Of a message of RocketMQ's clients, which send to all queues in turn, also what has a key."""
TTL = "halfmoon.ttl.ms"
"""The one header of this prefix that is the client's."""
MOST = 100
"""Schedules that one batch makes or changes."""

POLICIES: Mapping[bytes, Policy] = {b"once": "once", b"skip": "skip"}
_search = HeaderSearch((CRON, STATE))


class Taking:
    """What inspects produced batches."""

    def __init__(self, book: Book, missed: Policy) -> None:
        """`missed`: what becomes of missed times where a record does not say it."""
        self._book = book
        self._missed = missed
        self.topics: Topics | None = None
        """Of the broker, once it is there."""
        self.on_change: Callable[[], None] = lambda: None

    def before_put(self, put: Put) -> memoryview | Redirect:
        return finish(self.in_slices(put))

    def in_slices(self, put: Put) -> Generator[Any, Any, memoryview | Redirect]:
        changes = _Changes(self._book, put, self._topic(put.topic), self._missed)
        kept = yield from rewrite_in_slices(put.batch, _search, changes.change)
        if not changes.count:
            return put.batch
        rows = changes.rows
        redirected = (Redirected(TOPIC, 0, build_batch(rows)),) if rows else ()

        def appended(_places: tuple[tuple[str, int, int], ...]) -> None:
            for schedule_id, schedule in changes.changed.items():
                if schedule is None:
                    self._book.ended(schedule_id)
                else:
                    self._book.hold(schedule)
            self.on_change()

        return Redirect(kept, redirected, appended=appended, holds=changes.hold)

    def _topic(self, name: str) -> Topic:
        topic = None if self.topics is None else self.topics.get(name)
        if topic is None:
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        return topic


class _Changes:
    """Those of one batch."""

    def __init__(self, book: Book, put: Put, topic: Topic, missed: Policy) -> None:
        self._book = book
        self._put = put
        self._topic = topic
        self._missed = missed
        self.count = 0
        self.rows: list[Row] = []
        self.changed: dict[str, Recurring | None] = {}
        """By id; None: it ends."""
        self._known: dict[str, Recurring | None] = {}
        """What this was worked out from."""

    def hold(self) -> bool:
        return all(self._book.get(each) is known for each, known in self._known.items())

    def change(self, index: int, record: Record) -> Record | None:
        """As of `rewrite`. Raises BrokerError."""
        found = dict(record.headers)
        if CRON not in found and STATE not in found:
            return record
        self.count += 1
        if self.count > MOST:
            raise _refused(index, f"a batch makes or changes {MOST} schedules at most")
        try:
            self._change(index, record, found)
        except BrokerError as error:
            if error.fault is not Fault.INVALID_RECORD:
                raise
            raise _refused(index, error.message) from None
        return None

    def _change(self, index: int, record: Record, found: dict[str, bytes | None]) -> None:
        put, book = self._put, self._book
        name = _text(index, found, NAME)
        schedule_id = f"{put.topic}/{put.partition}/{name}"
        book.check_ready()
        self._check_partition(index, record, found)
        self._known.setdefault(schedule_id, book.get(schedule_id))
        if CRON in found:
            asked = self._asked(index, record, found, name)
            made = book.put(asked, self._demands, self.changed)
            if made is not None:
                self._write(schedule_id, made)
            return
        state = _text(index, found, STATE)
        if state not in (ACTIVE, PAUSED, CANCELLED):
            raise _refused(index, f"header {STATE} is {state[:40]!r}, not {ACTIVE}, {PAUSED} or {CANCELLED}")
        known = self.changed[schedule_id] if schedule_id in self.changed else book.get(schedule_id)
        if known is None:
            if state == CANCELLED:  # it may have been cancelled by the same record, sent again
                return
            raise _refused(index, f"there is no schedule {schedule_id}")
        if known.principal != put.principal:
            self._demands("alter")
        if state == CANCELLED:
            self._write(schedule_id, None)
            return
        made = book.changed(known, paused=state == PAUSED, now_ms=put.now_ms)
        if made is not None:
            self._write(schedule_id, made)

    def _check_partition(self, index: int, record: Record, found: dict[str, bytes | None]) -> None:
        """A schedule is in the partition to which it was sent. A client that sends it to any, and to another one the
        next time, would make several. Raises BrokerError(INVALID_RECORD)."""
        said = found.get(PARTITION)
        if said is not None:
            if said not in (FIXED, str(self._put.partition).encode()):
                raise _refused(index, f"header {PARTITION} is {said[:40]!r}: it was sent to {self._put.partition}")
        elif len(self._topic.partitions) > 1 and (record.key is None or BORN_HOST in found):
            raise _refused(
                index, f"a schedule needs a key or header {PARTITION}, by which it is in one partition, always"
            )

    def _write(self, schedule_id: str, made: Recurring | None) -> None:
        now_ms = self._put.now_ms
        self.changed[schedule_id] = made
        self.rows += of_end(schedule_id, now_ms) if made is None else [of_schedule(made, now_ms)]

    def _demands(self, operation: str) -> None:
        self._put.check(operation, "topic", self._put.topic)

    def _asked(self, index: int, record: Record, found: dict[str, bytes | None], name: str) -> Recurring:
        put = self._put
        said = found.get(MISSED) or self._missed.encode()
        missed = POLICIES.get(said)
        if missed is None:
            raise _refused(index, f"header {MISSED} is {said[:40]!r}, not once or skip")
        if STATE in found:
            raise _refused(index, f"headers {CRON} and {STATE} exclude each other")
        check_message(found)
        return Recurring(
            put.topic, put.partition, name, self._topic.id.hex(), _text(index, found, CRON),
            _text(index, found, ZONE) if found.get(ZONE) else "UTC", missed, record.key, record.value,
            message_headers(record.headers), put.principal, put.host, put.now_ms, Progress(put.now_ms),
        )  # fmt: skip


def check_message(found: dict[str, bytes | None]) -> None:
    """Raises BrokerError(INVALID_RECORD) for headers by which the message itself would be something else than one that
    is sent at once."""
    for name in (*DELAYS, CANCEL, RETRY_OF):
        if name in found:
            raise BrokerError(Fault.INVALID_RECORD, f"a recurring message cannot have header {name}")
    if (found.get(HALF) or b"").lower() == b"true":
        raise BrokerError(Fault.INVALID_RECORD, f"a recurring message cannot have header {HALF}")


def message_headers(headers: Headers) -> Headers:
    """Those with which it is sent. UNIQ_KEY, which RocketMQ's clients give each message, would make all of them one."""
    return tuple(
        (name, content)
        for name, content in headers
        if name not in NAMES and name != UNIQ_KEY and (name == TTL or not name.startswith("halfmoon."))
    )


def _text(index: int, found: dict[str, bytes | None], name: str) -> str:
    """Raises BrokerError(INVALID_RECORD)."""
    content = found.get(name)
    if not content:
        raise _refused(index, f"a schedule needs header {name}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _refused(index, f"header {name} is not UTF-8") from None


def _refused(index: int, problem: str) -> BrokerError:
    return BrokerError(Fault.INVALID_RECORD, problem if problem.startswith("record ") else f"record {index}: {problem}")
