"""ShareFetch (78): acquire records for a member of a share group, or wait until there are some (KIP-932).

Versions 1 and 2 (2: KIP-1206, exactly so many records; KIP-1222, renewing locks). A request belongs to a share session,
which it begins with epoch 0 and ends with −1; in between it names only what has changed. It may bring acknowledgements,
which come first; the answer leaves once they are durable. Those of a request that renews locks are all it is about:
nothing is fetched then.

The records are whole batches, as they lie in the log. Which of their offsets the member has acquired stands beside
them.

Waiting: where nothing can be acquired, or fewer bytes are there than `min_bytes`, the request is parked on the
partitions of its session and on their share partitions (records that are given back wake it, too), until `max_wait_ms`
is over, or another request comes on its connection.

Rules: KafkaApis.handleShareFetchRequest, DelayedShareFetch. Here a member is given what one partition has before the
next is looked at, and they take turns in being the first; Kafka divides `max_bytes` among them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from halfmoon.adapters.kafka.confirming import look, when_certain
from halfmoon.adapters.kafka.errors import code, code_of
from halfmoon.adapters.kafka.lookup import check_owner
from halfmoon.adapters.kafka.protocol import Slices, decode_request_slices
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.shards import pass_on
from halfmoon.adapters.kafka.share_codec import Buffer, SharedPart, encode
from halfmoon.adapters.kafka.share_groups import (
    NOT_LEADER,
    Acknowledging,
    Ledgers,
    OneLedger,
    Outcome,
    find,
    hand_out,
    has_acknowledgements,
    id_of,
    leaders_of,
    refusal,
)
from halfmoon.core.hold import Held
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.reading import Found, Loading
from halfmoon.services.share.service import ShareService
from halfmoon.services.share.sessions import FIRST_EPOCH, LAST_EPOCH, Key, ShareSession
from halfmoon.services.share.share_partition import Demand

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.services.share.delivery import ShareDelivery
    from halfmoon.services.share.parts import Part

log = logging.getLogger("halfmoon.kafka")

MAX_RESPONSE_BYTES = 55 << 20
EXACTLY = 1
"""ShareAcquireMode: 0 takes whole batches, 1 keeps to the limit of records."""


def handle(ctx: Context, body: memoryview) -> Slices[object]:
    return (yield from fetch(ctx, body, OneLedger(ctx.core, ctx.services.get(ShareService))))


def fetch(ctx: Context, body: memoryview, ledgers: Ledgers) -> Slices[object]:
    request = yield from decode_request_slices(78, ctx.api_version, body)
    ctx.limit_fetch(request)
    try:
        call = Call(ctx, request, ledgers)
        yield from call.acknowledge()
    except BrokerError as error:
        return encode({}, 0, code_of(error), str(error))
    call.run()
    return call.deferred


def _check(request: Any) -> None:
    """Raises BrokerError(INVALID_REQUEST)."""
    if not request.group_id or not request.member_id:
        raise BrokerError(Fault.INVALID_REQUEST, "a share fetch needs a group and a member")
    if request.share_session_epoch == FIRST_EPOCH and has_acknowledgements(request.topics):
        raise BrokerError(Fault.INVALID_REQUEST, "a session cannot begin with acknowledgements")
    if request.is_renew_ack and (request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records):
        raise BrokerError(Fault.INVALID_REQUEST, "a request that renews locks does not fetch")


class Load(NamedTuple):
    """Something to be done in a thread for one partition; `then` is handed what `work` returns, and may raise
    BrokerError."""

    partition: Partition
    delivery: ShareDelivery
    size: int
    work: Callable[[], Any]
    then: Callable[[Any], None]
    failed: Callable[[], None]


class Call:
    """One request. `run` carries it on as far as it goes: to the answer, to a thread that reads, or to waiting."""

    def __init__(self, ctx: Context, request: Any, ledgers: Ledgers) -> None:
        """Raises BrokerError."""
        _check(request)
        ctx.check("read", "group", request.group_id)
        self._ctx = ctx
        self._request = request
        self._group: str = request.group_id
        self._member: str = request.member_id
        core = ctx.core
        self._shares = shares = ctx.services.get(ShareService)
        self._ledgers = ledgers
        self._looks: list[Deferred] = []
        self._options = shares.options(self._group)
        self._wanted = max(0, request.max_records) if request.max_bytes > 0 else 0
        self._deadline_ms = core.clock.mono_ms() + max(0, request.max_wait_ms)
        self._held: Held | None = None
        self.deferred = Deferred()
        self._session = self._open()
        self._outcomes = Acknowledging(
            ctx, ledgers, self._group, self._member, self._options, may_renew=bool(request.is_renew_ack)
        )
        self._found: dict[Key, Found] = {}
        self._refused: dict[Key, Outcome] = {}
        self._parts: list[Part] = []
        self._loads: list[Load] = []
        self._fetches = not (request.share_session_epoch == LAST_EPOCH or request.is_renew_ack)
        self._last_look = not self._fetches or request.max_records <= 0
        self._looks_on = False
        """So far only what nobody is to get was seen. The client asks again at once, and others have their turn."""

    # -- the session -----------------------------------------------------------------------------------------------

    def _open(self) -> ShareSession:
        request, shares = self._request, self._shares
        sessions = shares.sessions
        epoch = request.share_session_epoch
        if epoch == FIRST_EPOCH:
            self._ledgers.check_name(self._group)
            before = sessions.get(self._group, self._member)
            if before is not None:
                sessions.end(before)  # what the member holds it may still be at work on
            session = sessions.begin(self._group, self._member, self._ctx.peer.owner)
        else:
            session = sessions.use(self._group, self._member, epoch)
        if epoch != LAST_EPOCH:
            named = [(id_of(topic.topic_id), part) for topic in request.topics for part in topic.partitions]
            forgotten = [
                (id_of(topic.topic_id), index) for topic in request.forgotten_topics_data for index in topic.partitions
            ]
            sessions.update(session, ((topic_id, part.partition_index) for topic_id, part in named), forgotten)
        return session

    def acknowledge(self) -> Slices[None]:
        """What the request brings, before `run`."""
        yield from self._outcomes.take(self._request.topics)
        session = self._session
        if (
            self._request.share_session_epoch == LAST_EPOCH
            and self._shares.sessions.get(session.group, session.member) is session
        ):
            self._shares.end_session(session)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _delivery(self, partition: Partition) -> ShareDelivery:
        return self._ledgers.of(partition).delivery

    def run(self) -> None:
        if self._fetches:
            self._read()
        if self._loads:
            self._load()
        elif self._has_answer or self._looks_on or self._is_over() or not self._parts:
            self._answer()
        else:
            self._park()

    @property
    def _has_answer(self) -> bool:
        """What is in it now is told before more is acquired: what is acquired and not told would stay locked."""
        return bool(self._found or self._refused or self._last_look)

    def _is_over(self) -> bool:
        return bool(self._ctx.core.clock.mono_ms() >= self._deadline_ms)

    def _read(self) -> None:
        """Acquire what there is, partition by partition."""
        assert not self._found
        is_session = self._shares.sessions.get(self._group, self._member) is self._session
        if not is_session or not self._ctx.allows("read", "group", self._group):  # since it waits
            self._last_look = True
            return
        self._refused.clear()
        self._parts.clear()
        for key in self._session.rotated():
            try:
                partition = find(self._ctx.core, key)
                refused = refusal(self._ctx, partition)
                if refused is not None:
                    self._refused[key] = refused
                    continue
                check_owner(self._ctx.core, partition)
                part = self._delivery(partition).begin(self._group, partition, self._options)
                if callable(part):
                    self._begin_in_thread(partition, part)
                else:
                    self._parts.append(part)
            except BrokerError as error:
                self._refused[key] = Outcome.of(error)
        if self._ctx.must_wait():
            self._last_look = True
            return
        if self._request.min_bytes > 1 and not self._is_over() and not self._last_look and not self._enough():
            return
        self._acquire()

    def _acquire(self) -> None:
        left, size = self._wanted, 0
        load_left = self._ctx.core.fetch_buffers.allowance()
        for part in self._parts:
            max_bytes = min(self._request.max_bytes, MAX_RESPONSE_BYTES) - size
            if left <= 0 or (size and (max_bytes <= 0 or not load_left)):
                break
            delivery = self._delivery(part.place.partition)
            found = delivery.fetch(part, self._member, self._demand(left), max_bytes, self._options, load_left)
            if isinstance(found, Loading):
                self._acquire_after(part, found)
                load_left = max(0, load_left - found.size)
            elif found is not None:
                self._found[_key(part.place.partition)] = found
            elif delivery.could_give(part, self._options):
                self._looks_on = True
            if found is not None:
                left -= found.records
                size += found.size

    def _demand(self, left: int) -> Demand:
        request = self._request
        return Demand(left, max(1, request.batch_size), request.share_acquire_mode == EXACTLY)

    def _enough(self) -> bool:
        available, enough = 0, self._request.min_bytes
        for part in self._parts:
            wanted = part.wanted(self._wanted, self._options.terms.max_locks)
            if wanted is not None:
                available += self._ctx.core.bytes_available(
                    part.place.partition, wanted[0], enough, committed=self._options.committed_only
                )
        return bool(available >= enough)

    # -- what takes a thread ---------------------------------------------------------------------------------------

    def _begin_in_thread(self, partition: Partition, find_offset: Callable[[], int]) -> None:
        delivery = self._delivery(partition)

        def then(offset: int) -> None:
            delivery.begin_at(self._group, partition, offset)

        self._loads.append(Load(partition, delivery, 0, find_offset, then, _nothing))

    def _acquire_after(self, part: Part, loading: Loading) -> None:
        partition = part.place.partition
        delivery = self._delivery(partition)

        def then(slices: Any) -> None:
            if self._shares.sessions.get(self._group, self._member) is not self._session:
                delivery.not_loaded(part)
                return
            left = self._wanted - sum(found.records for found in self._found.values())
            found = delivery.loaded(part, self._member, loading, slices, self._demand(left), self._options)
            if found.acquired:
                self._found[_key(partition)] = found

        failed = partial(delivery.not_loaded, part)
        self._loads.append(Load(partition, delivery, loading.size, loading.load, then, failed))

    def _load(self) -> None:
        self._look()
        loads, self._loads = self._loads, []
        results: list[tuple[Any, Outcome | None]] = []

        def work() -> None:
            for load in loads:
                try:
                    results.append((load.work(), None))
                except BrokerError as refused:
                    results.append((None, Outcome.of(refused)))
                except OSError as error:  # the other partitions are not disturbed
                    results.append((None, Outcome(code(Fault.KAFKA_STORAGE_ERROR), str(error))))

        def arrived(_: object, error: BaseException | None) -> None:
            self.deferred.hurry = None
            for at, load in enumerate(loads):
                unknown = Outcome(code(Fault.KAFKA_STORAGE_ERROR), str(error))
                found, refusal = results[at] if at < len(results) else (None, unknown)
                key = _key(load.partition)
                if self._delivery(load.partition) is not load.delivery:  # the shard is another's now, or was meanwhile
                    refusal = Outcome(NOT_LEADER, None)
                if refusal is None:
                    try:
                        load.then(found)
                    except BrokerError as refused:
                        self._refused[key] = Outcome.of(refused)
                else:
                    load.failed()
                    self._refused[key] = refusal
            if self._has_answer or self._is_over():
                self._answer()
            else:
                self.run()

        self.deferred.hurry = self._hurried
        self._ctx.peer.load(sum(load.size for load in loads), work, arrived)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _park(self) -> None:
        core = self._ctx.core
        self.deferred.hurry = self._hurried
        self._held = Held(
            partitions=self._parts,
            missing_bytes=1,
            deadline_ms=self._deadline_ms,
            owner=self._ctx.peer.owner,
            wake=self._wake,
        )
        core.hold.park(self._held, core.clock.mono_ms())

    def _hurried(self) -> None:
        self._last_look = True
        if self._held is not None and self._ctx.core.hold.release(self._held):
            self._wake()

    def _wake(self) -> None:
        # This object and what it is parked as point at each other; let go, so that no garbage collection is needed.
        held, self._held, self.deferred.hurry = self._held, None, None
        if held is not None and held.deadline_ms <= self._ctx.core.clock.mono_ms():
            self._last_look = True
        try:
            self.run()
        except Exception:
            # A programmer's error. It must not reach who woke us: others are still to be woken.
            log.exception("event=request_failed api=ShareFetch")
            self.deferred.complete(Close("a parked share fetch failed"))

    # -- the answer ------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Whether what it tells of so far is this node's. Later on a shard may be known to be another's: then nobody is
        asked about it any more."""
        self._outcomes.check_here()
        confirm = self._ledgers.confirm
        if confirm is not None and (self._outcomes.outcomes or any(found.acquired for found in self._found.values())):
            self._looks.append(look(confirm))

    def _answer(self) -> None:
        self._look()
        if self._outcomes.waits:
            self._outcomes.when_durable(self._durable)
        else:
            self._durable()

    def _durable(self) -> None:
        pass_on(when_certain(self._looks, self._encoded()), self.deferred)

    def _encoded(self) -> list[Buffer]:
        hand_out(self._ctx, self._found)
        keys = dict.fromkeys((*self._outcomes.outcomes, *self._found, *self._refused))
        if self._request.share_session_epoch == FIRST_EPOCH:
            keys |= dict.fromkeys(self._session.parts)
        refused = [key for key, outcome in self._refused.items() if outcome.error_code == NOT_LEADER]
        leaders = leaders_of(self._ctx, refused) if refused else {}
        topics: dict[bytes, list[SharedPart]] = {}
        for key in keys:
            part = SharedPart(key[1])
            if key in self._refused:
                part.error_code, part.message = self._refused[key]
                part.leader = leaders.get(key)
            if key in self._outcomes.outcomes:
                part.acknowledge_code, part.acknowledge_message = self._outcomes.outcomes[key]
            found = self._found.get(key)
            if found is not None:
                part.slices, part.size, part.acquired = found.slices, found.size, found.acquired
            topics.setdefault(key[0], []).append(part)
        return encode(topics, self._options.terms.lock_ms)


def _key(partition: Partition) -> Key:
    return partition.topic.id, partition.index


def _nothing() -> None:
    pass
