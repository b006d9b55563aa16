"""The half messages of a broker that have no end yet: what their records say, where they wait, how they end.

plugin.py says what is promised. This is compiled (decision 0161), which a module with hooks cannot be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from operator import eq
from typing import Any, Final, Protocol

from halfmoon.plugin import (
    BrokerError,
    Complete,
    Fault,
    Headers,
    HeaderSearch,
    PluginContext,
    Put,
    Record,
    Redirect,
    Redirected,
    Reschedule,
    Scheduled,
    build_batch,
    build_in_slices,
    check_topic,
    check_topic_name,
    iter_records,
    rewrite,
    rewrite_in_slices,
    uncompressed,
)
from halfmoon.plugins.store.delay.delays import NAMES as DELAYS
from halfmoon.schema.lifetimes import CARRIED

HALF: Final = "TRAN_MSG"
GROUP: Final = "PGROUP"
KEY: Final = "UNIQ_KEY"
STATE: Final = "TRAN_STATE"
CHECK_TIMES: Final = "TRAN_CHECK_TIMES"
REAL_TOPIC: Final = "REAL_TOPIC"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
END_TOPIC: Final = "halfmoon.transactions"
CHECK_PREFIX = check_topic("")
COMMIT: Final = b"commit"
ROLLBACK: Final = b"rollback"
UNKNOWN: Final = b"unknown"
MAX_NAME_BYTES: Final = 1_000
MOST_CHECK_TOPICS = 50
"""That are made with one batch."""
MOST_MESSAGES = 10_000
"""Half messages in one batch, or ends."""

SLICE: Final = 64
"""Records that are looked at between two pauses."""

_search = HeaderSearch([HALF])
_NOT_KEPT: Final[tuple[str, ...]] = (HALF, *DELAYS)
"""Headers that the message is not delivered with."""

Name = tuple[bytes, bytes]
"""Producer group and key."""
Place = tuple[str, int, int]
Row = tuple[bytes | None, bytes | None, int, Headers]


class Settings(Protocol):
    """What is read of them (plugin.TransactionSettings)."""

    @property
    def timeout_ms(self) -> int: ...

    @property
    def check_interval_ms(self) -> int: ...

    @property
    def check_max(self) -> int: ...

    @property
    def max_age_ms(self) -> int: ...


class Transactions:
    """The half messages of a broker that have no end yet."""

    def __init__(self, ctx: PluginContext, settings: Settings) -> None:
        self._ctx = ctx
        self._settings = settings
        self._open: dict[Name, Place] = {}
        """Names of half messages, and where these wait."""
        self.counts: Counter[str] = Counter()
        self._groups: Counter[bytes] = Counter()
        """How many of them each producer group has."""

    def __len__(self) -> int:
        return len(self._open)

    def open_of(self, group: bytes) -> int:
        """How many half messages of a group wait."""
        return self._groups[group]

    def _put(self, name: Name, place: Place) -> None:
        if name not in self._open:
            self._groups[name[0]] += 1
        self._open[name] = place

    def _drop(self, names: Iterable[Name], of_groups: Mapping[bytes, int]) -> None:
        """`of_groups`: how many of the names, all of which are known, each group has."""
        for name in names:
            self._open.pop(name, None)
        for group, count in of_groups.items():
            self._groups[group] -= count
            if not self._groups[group]:
                del self._groups[group]

    # -- 1: halves ---------------------------------------------------------------------------------------------------

    def redirect_halves(self, put: Put) -> memoryview | Redirect:
        halves = self._halves(put)
        kept = rewrite(put.batch, _search, halves.change)
        return halves.redirect(kept, build_batch(halves.rows)) if halves.rows else Redirect(kept)

    def halves_in_slices(self, put: Put) -> Generator[Any, Any, memoryview | Redirect]:
        halves = self._halves(put)
        kept = yield from rewrite_in_slices(put.batch, _search, halves.change)
        return halves.redirect(kept, (yield from build_in_slices(halves.rows))) if halves.rows else Redirect(kept)

    def _halves(self, put: Put) -> _Halves:
        if self._ctx.topic_configs(END_TOPIC) is None:
            self._ctx.create_topic(END_TOPIC, {}, 1)
        self._ctx.catch_up(HALF_TOPIC)
        return _Halves(self, put, self._settings.timeout_ms)

    def is_open(self, name: Name) -> bool:
        return name in self._open

    def are_unknown(self, names: Collection[Name]) -> bool:
        """Whether none of them is open."""
        return self._open.keys().isdisjoint(names)

    def took(self, names: Collection[Name], place: Place) -> None:
        """Half messages of these names, none of which is known, wait from this place on."""
        topic, partition, first = place
        for offset, name in enumerate(names, first):
            self._open[name] = (topic, partition, offset)
            self._groups[name[0]] += 1
        self.counts["prepared"] += len(names)
        self._make_check_topics(names)

    def _make_check_topics(self, names: Iterable[Name]) -> None:
        """With the first half message of a group: who subscribes to its check topic would learn of it much later than
        of the first check. That makes those that are not made here."""
        for group in islice(dict.fromkeys([name[0] for name in names]), MOST_CHECK_TOPICS):
            topic = check_topic(group.decode())
            if self._ctx.topic_configs(topic) is None:
                with suppress(BrokerError):  # there are too many topics
                    self._ctx.create_topic(topic, {}, 1)

    def begin(self, message: Scheduled) -> None:
        name = _known_name(message.record)
        if name is None:
            return
        known = self._open.get(name)
        if known is None or not self._ctx.is_scheduled(*known):  # one that was moved waits elsewhere now
            self._put(name, (message.topic, message.partition, message.offset))

    # -- 2: ends -----------------------------------------------------------------------------------------------------

    def end(self, put: Put) -> memoryview | Redirect:
        if put.topic != END_TOPIC:
            return put.batch
        ends = _Ends(self, put)
        for index, record in enumerate(iter_records(put.batch)):
            ends.add(index, record)
        self._ctx.catch_up(HALF_TOPIC)
        for name in ends.ended:
            ends.find(name)
        return ends.redirect()

    def ends_in_slices(self, put: Put) -> Generator[Any, Any, memoryview | Redirect]:
        if put.topic != END_TOPIC:
            return put.batch
        ends = _Ends(self, put)
        batch = yield lambda: uncompressed(put.batch)
        for index, record in enumerate(iter_records(batch)):
            if index % SLICE == SLICE - 1:
                yield None
            ends.add(index, record)
        self._ctx.catch_up(HALF_TOPIC)
        for index, name in enumerate(ends.ended):
            if index % SLICE == SLICE - 1:
                yield None
            ends.find(name)
        return ends.redirect()

    def place_of(self, name: Name) -> Place | None:
        """Where the half message of this name waits."""
        place = self._open.get(name)
        return place if place is not None and self._ctx.is_scheduled(*place) else None

    def are_at(self, places: Mapping[Name, Place]) -> bool:
        """Whether these half messages are still there."""
        return all(map(eq, map(self._open.get, places), places.values()))

    def ended(self, places: Mapping[Name, Place], committed: int, unknown: int) -> None:
        """These have ended, so many of them with a commit; `unknown`: other ends that were said, of nothing."""
        of_groups: dict[bytes, int] = {}
        for group, _ in places:
            of_groups[group] = of_groups.get(group, 0) + 1
        self._drop(places, of_groups)
        self.counts["committed"] += committed
        self.counts["rolled_back"] += len(places) - committed
        if unknown:
            self._ctx.count("unknown_ends", unknown)

    # -- 3, 4: checks ------------------------------------------------------------------------------------------------

    def decide(self, message: Scheduled) -> Reschedule | Complete:
        settings = self._settings
        name = _known_name(message.record)
        age_ms = settings.timeout_ms + message.attempts * settings.check_interval_ms
        if name is None or message.attempts >= settings.check_max or age_ms >= settings.max_age_ms:
            if name in self._open:
                self._drop([name], {name[0]: 1})
            self.counts["given_up"] += 1
            return Complete(GIVEN_UP_TOPIC, ((CHECK_TIMES, b"%d" % message.attempts), *_real_topic(message)))
        self.counts["checked"] += 1
        headers = ((CHECK_TIMES, b"%d" % (message.attempts + 1)), *_real_topic(message))
        return Reschedule(message.now_ms + settings.check_interval_ms, check_topic(name[0].decode()), headers)


class _Halves:
    """The half messages of one batch."""

    def __init__(self, transactions: Transactions, put: Put, timeout_ms: int) -> None:
        self._transactions = transactions
        self._put = put
        self._due_ms = put.now_ms + timeout_ms
        self.rows: list[Row] = []
        self._names: dict[Name, None] = {}
        self._groups: set[bytes] = set()
        """That the client may speak for."""

    def change(self, index: int, record: Record) -> Record | None:
        """As of `rewrite`. Raises BrokerError."""
        found = dict(record.headers)
        if (found.get(HALF) or b"").lower() != b"true":
            return record
        name = _name(index, found)
        if name[0] not in self._groups:
            self._put.check("write", "transactional_id", name[0].decode())
            self._groups.add(name[0])
        if name in self._names or self._transactions.is_open(name):  # sent again by a producer that had no answer
            return None
        if len(self.rows) == MOST_MESSAGES:
            raise BrokerError(Fault.INVALID_RECORD, f"a batch has at most {MOST_MESSAGES} half messages")
        kept: list[tuple[str, bytes | None]] = []
        for header in record.headers:
            if header[0] not in _NOT_KEPT and (not header[0].startswith("halfmoon.") or header[0] in CARRIED):
                kept.append(header)
        self._names[name] = None
        self.rows.append((record.key, record.value, record.timestamp, tuple(kept)))
        return None

    def redirect(self, kept: memoryview | bytes | None, batch: bytes) -> Redirect:
        """`batch`: of `rows`."""
        half = Redirected(HALF_TOPIC, 0, batch, self._due_ms, known=True)
        return Redirect(kept, (half,), appended=self._appended, holds=self._holds)

    def _appended(self, places: tuple[Place, ...]) -> None:
        self._transactions.took(self._names, places[0])

    def _holds(self) -> bool:
        return self._transactions.are_unknown(self._names)


class _Ends:
    """What one batch says of half messages."""

    def __init__(self, transactions: Transactions, put: Put) -> None:
        self._transactions = transactions
        self._put = put
        self.ended: dict[Name, bool] = {}
        """Whether it is committed: the first end counts."""
        self._groups: set[bytes] = set()
        """That the client may speak for."""
        self._places: dict[Name, Place] = {}
        """Of those that are open."""
        self._release: list[Place] = []
        self._complete: list[Place] = []

    def add(self, index: int, record: Record) -> None:
        """Raises BrokerError(INVALID_RECORD)."""
        if index == MOST_MESSAGES:
            raise BrokerError(Fault.INVALID_RECORD, f"at most {MOST_MESSAGES} half messages are ended in one batch")
        found = dict(record.headers)
        name = _name(index, found)
        if name[0] not in self._groups:
            self._put.check("write", "transactional_id", name[0].decode())
            self._groups.add(name[0])
        state = (found.get(STATE) or b"").lower()
        if state not in (COMMIT, ROLLBACK, UNKNOWN):
            raise BrokerError(
                Fault.INVALID_RECORD,
                f"record {index}: header {STATE} is {state[:40]!r}, not commit, rollback or unknown",
            )
        if state != UNKNOWN:
            self.ended.setdefault(name, state == COMMIT)

    def find(self, name: Name) -> None:
        """Look for the half message of one that has ended."""
        place = self._transactions.place_of(name)
        if place is not None:
            self._places[name] = place
            (self._release if self.ended[name] else self._complete).append(place)

    def redirect(self) -> Redirect:
        return Redirect(
            None,
            release=tuple(self._release),
            complete=tuple(self._complete),
            appended=self._appended,
            holds=self._holds,
        )

    def _appended(self, _: tuple[Place, ...]) -> None:
        places = self._places
        self._transactions.ended(places, len(self._release), len(self.ended) - len(places))

    def _holds(self) -> bool:
        return self._transactions.are_at(self._places)


def _real_topic(message: Scheduled) -> Headers:
    return () if message.origin is None else ((REAL_TOPIC, message.origin.encode()),)


def _name(index: int, found: dict[str, bytes | None]) -> Name:
    """Raises BrokerError(INVALID_RECORD)."""
    for header in (GROUP, KEY):
        content = found.get(header)
        if not content or len(content) > MAX_NAME_BYTES:
            raise BrokerError(
                Fault.INVALID_RECORD,
                f"record {index}: a transaction needs header {header}, of at most {MAX_NAME_BYTES} bytes",
            )
    group = found[GROUP] or b""
    try:
        _check_group(group)
    except UnicodeDecodeError:
        raise BrokerError(Fault.INVALID_RECORD, f"record {index}: header {GROUP} is not UTF-8") from None
    except BrokerError as error:
        raise BrokerError(Fault.INVALID_RECORD, f"record {index}: header {GROUP}: {error.message}") from None
    return group, found[KEY] or b""


@lru_cache(1_000)
def _check_group(group: bytes) -> None:
    """Raises UnicodeDecodeError, BrokerError where no topic can be made of a producers' group."""
    check_topic_name(check_topic(group.decode()))


def _known_name(record: Record) -> Name | None:
    found = dict(record.headers)
    group, key = found.get(GROUP), found.get(KEY)
    return (group, key) if group and key else None
