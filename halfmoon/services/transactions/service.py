"""Producers' transactions carried out on the log (core/transactions says what the words mean, `rules` decides).

Whatever a client is told of a transaction is in the log before. An end is one frame group (`ending`), but for large
transactions (`prepared`). So what was ongoing before a crash is ongoing still, until its producer ends it or it has
taken too long.

    append → partition added (a record of its own, at the first batch) → batch
    end    → [marker, …, TransactionEnded]

Where other shards share the topics, a transaction has partitions and groups in several. The shard that coordinates its
id decides, and writes down, what is described here; the others ask it, and are told (`others`, `remote`). Such a
transaction ends as a large one does.

A transactional batch is taken only from the present producer of a transactional id, for a partition that is part of its
transaction. So none can be left behind that nobody ends (KIP-890). Without this service transactional batches are
refused, and what is open stays open: the section of the catalog keeps it (`state`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

from halfmoon.config.settings import Settings
from halfmoon.core.append import Appender
from halfmoon.core.append_types import TransactionalProducer
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature
from halfmoon.core.live import Live
from halfmoon.core.records.batch_header import BatchHeader
from halfmoon.core.storage.storage import WriteSide
from halfmoon.core.timers import Timers
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.transactions import Identity
from halfmoon.services.transactions import metrics, rules
from halfmoon.services.transactions.doubts import outcomes
from halfmoon.services.transactions.ending import TransactionEndings
from halfmoon.services.transactions.entry import TransactionalId
from halfmoon.services.transactions.fencing import fence_all
from halfmoon.services.transactions.others import Doubt, End, Join, Joined, OtherShards, Outcome
from halfmoon.services.transactions.prepared import PreparedTransactions, Told
from halfmoon.services.transactions.remote import RemoteTransactions
from halfmoon.services.transactions.state import TransactionsState
from halfmoon.services.transactions.timeouts import Timeouts

MAX_PARTITIONS = 32_000
"""Of one transaction."""
AT_ONCE = 100
"""So many are aborted in one go that have taken too long, or fewer with so many partitions together, …"""
IDS_AT_ONCE = 1_000
"""… and so many ids forgotten that nobody has used."""
NAMED = 5
"""So many transactional ids a warning names."""
RETRY_MS = 10_000
"""After so long an end that could not be written is tried again."""


class TransactionService:
    """Of one broker. Positions are those of the log to wait for before anything is answered."""

    def __init__(
        self,
        state: TransactionsState,
        endings: TransactionEndings,
        prepared: PreparedTransactions,
        log: WriteSide,
        appender: Appender,
        timers: Timers,
        clock: Clock,
        settings: Live[Settings],
        logger: logging.Logger,
    ) -> None:
        self._state = state
        self._endings = endings
        self._prepared = prepared
        self._log = log
        self._appender = appender
        self._timers = timers
        self._clock = clock
        self._settings = settings
        self._logger = logger
        self._timeouts = Timeouts()
        self._remote: RemoteTransactions | None = None
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0

    def use(self, shards: OtherShards) -> None:
        """Other shards share the topics. Before the log is opened."""
        self._prepared.use(shards)
        self._remote = RemoteTransactions(shards, self._state, self._endings, self._appender, self._timers, self._clock)

    def feature(self) -> Feature:
        return Feature(
            "transactions",
            restore=self.restore,
            start=self.start,
            timed=self,
            retain=self.retain,
            families=metrics.FAMILIES,
            read_metrics=lambda put: metrics.read(self, len(self._state.by_name), put),
            while_off=Feature("transactions", warnings=self._left_open),
        )

    def _left_open(self) -> list[str]:
        left = [*self._state.ongoing, *self._state.prepared]
        names = ", ".join(left[:NAMED])
        more = f" and {len(left) - NAMED} more" if len(left) > NAMED else ""
        text = f"services.transactions is off, and readers of committed records wait for {names}{more}"
        return [text] if left else []

    def restore(self) -> None:
        """Take up what the log remembers. Called once, before the first request. Raises BrokerError."""
        mono_ms, wall_ms = self._clock.mono_ms(), self._clock.wall_ms()
        for entry in self._state.ongoing.values():
            left_ms = min(max(0, entry.due_ms - wall_ms), entry.timeout_ms)
            self._timeouts.began(entry.name, mono_ms + left_ms)
        owners = (*self._state.ongoing.values(), *self._state.prepared.values())
        for partition, producer_id in self._endings.abort_unowned(owners):
            self._logger.warning("event=transaction_without_owner partition=%r producer_id=%d", partition, producer_id)
        if self._remote is not None:
            self._remote.doubts.find()

    def start(self) -> None:
        self._prepared.start()
        if self._remote is not None:
            self._remote.doubts.start()

    def send_away(self) -> None:
        """See `PreparedTransactions` and `RemoteTransactions`."""
        self._prepared.send_away()
        if self._remote is not None:
            self._remote.send_away()

    def fence_all(self, flush: Callable[[], None]) -> None:
        """See `fencing`."""
        fence_all(self._state, self._appender, self._clock, self._end, flush)

    # -- who the producer is -------------------------------------------------------------------------------------------

    def init_producer_id(self, name: str, timeout_ms: int, expected: tuple[int, int] | None) -> tuple[Identity, int]:
        """A producer takes a transactional id, or asks for its next epoch: `expected` is the id and epoch it has. What
        was ongoing is aborted. (KIP-98, KIP-360.)

        Raises BrokerError(INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, KAFKA_STORAGE_ERROR), and
        CONCURRENT_TRANSACTIONS until a large transaction has ended.
        """
        longest_ms = self._settings.current.transactions.max_timeout_ms
        if not 0 < timeout_ms <= longest_ms:
            raise BrokerError(
                Fault.INVALID_TRANSACTION_TIMEOUT, f"transaction time-out {timeout_ms} ms, at most {longest_ms} ms"
            )
        entry = self._entry(name)
        if entry is not None and entry.is_ongoing:
            if expected is not None:
                rules.check_present(entry, *expected)
            self._end(entry, rules.bumped(entry, self._new_producer_id), commit=False)
        # Raises where that has only begun.
        identity = rules.initialized(entry, expected, self._new_producer_id)
        now_ms = self._clock.wall_ms()
        position = self._appender.append_control(control.TransactionalIdInitialized(name, identity, timeout_ms, now_ms))
        return identity, position

    def _entry(self, name: str) -> TransactionalId | None:
        return self._state.by_name.get(name)

    def _new_producer_id(self) -> int:
        return self._appender.allocate_producer_id()[0]

    # -- what belongs to a transaction ---------------------------------------------------------------------------------

    def add_partitions(self, name: str, producer_id: int, epoch: int, partitions: Sequence[Partition]) -> int:
        """Partitions become part of the transaction, which begins with the first. Returns the position to wait for.

        Raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; INVALID_REQUEST over
        `MAX_PARTITIONS`.
        """
        entry = rules.check_producer(self._entry(name), producer_id, epoch)
        places = [(partition.topic.number, partition.index) for partition in partitions]
        self._check_size(entry, len(places))
        return self._grow(entry, [place for place in places if place not in entry.partitions], [])

    def _check_size(self, entry: TransactionalId, more: int) -> None:
        if len(entry.partitions) + more > MAX_PARTITIONS:
            raise BrokerError(Fault.INVALID_REQUEST, f"a transaction may write to {MAX_PARTITIONS} partitions")

    def add_group(self, name: str, producer_id: int, epoch: int, group: str) -> int:
        """The transaction is to commit offsets of a group. As `add_partitions`."""
        entry = rules.check_producer(self._entry(name), producer_id, epoch)
        return self._grow(entry, [], [] if group in entry.groups else [group])

    def _grow(self, entry: TransactionalId, places: list[tuple[int, int]], groups: list[str]) -> int:
        if entry.is_ongoing and not places and not groups:
            return self._log.end
        begins = not entry.is_ongoing
        now_ms = self._clock.wall_ms()
        position = self._appender.append_control(control.TransactionGrown(entry.name, places, groups, now_ms))
        if begins:
            due_ms = self._clock.mono_ms() + entry.timeout_ms
            self._timeouts.began(entry.name, due_ms)
            self._timers.arm(due_ms)
        return position

    def verify_partition(self, name: str, producer_id: int, epoch: int, partition: Partition) -> None:
        """Whether the partition is part of the transaction. Raises BrokerError: as `add_partitions`, or
        TRANSACTION_ABORTABLE where it is not."""
        entry = rules.check_producer(self._entry(name), producer_id, epoch)
        if not entry.is_ongoing or (partition.topic.number, partition.index) not in entry.partitions:
            raise BrokerError(Fault.TRANSACTION_ABORTABLE, f"{partition!r} was not added to the transaction")

    def before_append(self, producer: TransactionalProducer, partition: Partition, header: BatchHeader) -> None:
        """Make sure that a transactional batch, about to be appended, belongs to its producer's transaction.

        Raises BrokerError: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE,
        OUT_OF_ORDER_SEQUENCE_NUMBER, CONCURRENT_TRANSACTIONS; AsksFirstError where another shard knows.
        """
        entry = self._entry(producer.transactional_id)
        if entry is None and self._remote is not None and self._remote.before_append(producer, partition, header):
            return
        try:
            entry = rules.check_producer(entry, header.producer_id, header.producer_epoch)
        except BrokerError as error:
            raise rules.of_batch(error, adds=producer.adds_partitions) from None
        if entry.is_ongoing and (partition.topic.number, partition.index) in entry.partitions:
            return
        if not producer.adds_partitions:
            raise BrokerError(Fault.TRANSACTION_ABORTABLE, f"{partition!r} was not added to the transaction")
        known = partition.producers is not None and header.producer_id in partition.producers.by_id
        if header.base_sequence and not known:
            # Each transaction begins at 0: what was sent before this batch is still on its way, or lost.
            raise BrokerError(
                Fault.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins in {partition!r} at sequence {header.base_sequence}, not 0",
            )
        self.add_partitions(entry.name, header.producer_id, header.producer_epoch, [partition])

    def commit_offsets(
        self,
        producer: TransactionalProducer,
        producer_id: int,
        epoch: int,
        group: str,
        entries: Sequence[tuple[Partition, int, int, str]],
    ) -> int:
        """Offsets of a group, (partition, offset, leader epoch, metadata) each, that count if the transaction commits.
        Whether the group lets them be committed was asked before.

        Raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED; TRANSACTION_ABORTABLE where the group is not
        part of the transaction; AsksFirstError where another shard knows that.
        """
        now_ms = self._clock.wall_ms()
        made = [
            (partition.topic.number, partition.index, control.Committed(offset, leader_epoch, metadata, now_ms))
            for partition, offset, leader_epoch, metadata in entries
        ]
        remote = self._remote
        if remote is not None and remote.before_commit(producer, producer_id, epoch, group):
            return remote.commit_offsets(producer_id, epoch, group, made)
        entry = rules.check_producer(self._entry(producer.transactional_id), producer_id, epoch)
        if producer.adds_partitions:
            self.add_group(entry.name, producer_id, epoch, group)
        elif not entry.is_ongoing or group not in entry.groups:
            raise BrokerError(Fault.TRANSACTION_ABORTABLE, f"group '{group}' was not added to the transaction")
        return self._appender.append_control(control.TransactionOffsets(entry.name, group, made))

    # -- for other shards ----------------------------------------------------------------------------------------------

    def coordinates(self, name: str) -> bool:
        """Whether this shard does, and none of the others."""
        return self._remote is None or self._remote.is_own(name)

    def join(self, asked: Join) -> Joined:
        """Another shard asks whether something that lies there is part of a transaction, or is to be.

        Raises BrokerError: as `add_partitions`.
        """
        entry = rules.check_producer(self._entry(asked.name), asked.producer_id, asked.epoch)
        places, groups, refused = rules.joining(entry, asked)
        if places or groups:
            self._check_size(entry, len(places))
            self._grow(entry, places, groups)
        return Joined(self._log.end, refused)

    def outcomes(self, asked: Sequence[Doubt]) -> tuple[int, list[Outcome]]:
        """What has become of transactions of which other shards have something open, and what that rests on."""
        return self._log.end, outcomes(self._state.by_name.values(), asked)

    def end_here(self, end: End) -> int:
        """The coordinator of a transaction has decided how it ends: see `RemoteTransactions.end`."""
        assert self._remote is not None, "no other shard asks"
        return self._remote.end(end)

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def end(self, name: str, producer_id: int, epoch: int, *, commit: bool, bumps: bool) -> tuple[Identity, int | None]:
        """Commit or abort. `bumps`: the producer's epoch is raised with it (KIP-890). Returns who the producer is from
        now on, and the position to wait for: None where it takes longer, and `when_ended` tells.

        Raises BrokerError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR,
        CONCURRENT_TRANSACTIONS.
        """
        entry = self._entry(name)
        identity = rules.ended(entry, producer_id, epoch, self._new_producer_id, commit=commit, bumps=bumps)
        assert entry is not None
        if identity is None:
            return entry.identity, self._log.end
        return identity, self._end(entry, identity, commit=commit)

    def when_ended(self, name: str, told: Told) -> None:
        """See `PreparedTransactions`."""
        self._prepared.when_ended(name, told)

    def _end(self, entry: TransactionalId, identity: Identity, *, commit: bool) -> int | None:
        """Raises BrokerError(KAFKA_STORAGE_ERROR); nothing has changed then."""
        position: int | None = None
        if self._prepared.needs_slices(entry):
            self._prepared.prepare(entry, identity, commit=commit)
        else:
            position = self._endings.end(entry, identity, commit=commit)
        self._timeouts.ended(entry.name)
        if commit:
            self.committed += 1
        else:
            self.aborted += 1
        return position

    def abort_in(self, partition: Partition, producer_id: int, epoch: int) -> int:
        """End what a producer has open in one partition, as an operator asks who found it hanging. Raises BrokerError:
        INVALID_PRODUCER_EPOCH where the producer has a newer one by now."""
        state = None if partition.producers is None else partition.producers.by_id.get(producer_id)
        if state is not None and epoch < state.epoch:
            raise BrokerError(
                Fault.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of producer {producer_id}, current is {state.epoch}"
            )
        position = self._endings.abort_in(partition, producer_id, epoch)
        if self._remote is not None:
            self._remote.forget(producer_id, partition)
        return position

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `expire` has work (monotonic ms); None while nothing is ongoing, or asked."""
        deadlines = self._timeouts.next_deadline(), None if self._remote is None else self._remote.next_deadline()
        return min((each for each in deadlines if each is not None), default=None)

    def expire(self, mono_ms: int) -> None:
        """Abort what has taken too long, and fence its producer: some of it, if there is much."""
        if self._remote is not None:
            self._remote.expire(mono_ms)
        ended = partitions = 0
        while max(ended, partitions) < AT_ONCE and (name := self._timeouts.due(mono_ms)) is not None:
            entry = self._state.by_name[name]
            partitions += len(entry.partitions)
            try:
                self._end(entry, rules.bumped(entry, self._new_producer_id), commit=False)
            except BrokerError as error:
                self._timeouts.retry_at(mono_ms + RETRY_MS)
                self._logger.error("event=transaction_not_aborted id=%s error=%s", name, error)
                continue
            ended += 1
            self.timed_out += 1
            self._logger.info("event=transaction_timed_out id=%s", name)

    def expire_ids(self, now_ms: int) -> bool:
        """Forget some transactional ids that have not been used for `$.transactions.id_expiration`. Returns whether
        there may be more. Raises BrokerError."""
        kept_ms = self._settings.current.transactions.id_expiration_ms
        if kept_ms is None:
            return False
        gone = list(islice(self._state.unused(now_ms - kept_ms), IDS_AT_ONCE))
        if gone:
            self._appender.append_control(control.TransactionalIdsExpired(gone))
        return len(gone) == IDS_AT_ONCE

    def retain(self, now_ms: int) -> Iterator[None]:
        """The part of the retention walk that is transactional ids'. Raises BrokerError."""
        while self.expire_ids(now_ms):
            yield

    # -- operators -----------------------------------------------------------------------------------------------------

    @property
    def by_name(self) -> Mapping[str, TransactionalId]:
        """All transactional ids."""
        return self._state.by_name

    @property
    def ongoing(self) -> int:
        return len(self._state.ongoing) + len(self._state.prepared)

    @property
    def oldest_ms(self) -> int:
        """For how long the oldest of them has been open; 0 where none is."""
        now_ms = self._clock.wall_ms()
        entries = (*self._state.ongoing.values(), *self._state.prepared.values())
        return max((now_ms - entry.start_ms for entry in entries), default=0)
