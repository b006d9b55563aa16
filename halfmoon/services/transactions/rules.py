"""What a request may do to a transactional id: pure decisions, made before anything is written.

Rules: TransactionCoordinator and TransactionMetadata of Kafka 4, with KIP-360 (a producer that lost its way asks for
the next epoch) and KIP-890 (each end bumps the epoch, so that what was sent before it cannot come after it).

A decision is the identity that comes next, or BrokerError: INVALID_PRODUCER_ID_MAPPING for an id or a producer id that
does not belong to it, PRODUCER_FENCED for an epoch that is not the present one, INVALID_TXN_STATE for an end where
nothing is ongoing, CONCURRENT_TRANSACTIONS while a prepared transaction has not ended.
"""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.transactions import LAST_EPOCH, NO_EPOCH, NO_PRODUCER, Identity, TransactionState
from halfmoon.services.transactions.entry import TransactionalId
from halfmoon.services.transactions.others import Doubt, Join, Outcome

NewProducerId = Callable[[], int]


def initialized(
    entry: TransactionalId | None, expected: tuple[int, int] | None, new_producer_id: NewProducerId
) -> Identity:
    """Who the producer is that calls InitProducerId; what was ongoing is ended by then.

    `expected`: the id and epoch that it says it has, if it has any: then somebody else may not have come in between.
    """
    if entry is None:
        return Identity(new_producer_id(), 0)
    now = entry.present
    if entry.is_prepared:
        if expected is not None and expected[0] not in (now.producer_id, now.last_producer_id):
            raise _fenced(entry, expected[1])
        raise _still_ending(entry)
    if expected is None:
        if now.is_exhausted:
            return Identity(new_producer_id(), 0, now.producer_id)
        return Identity(now.producer_id, now.epoch + 1, now.producer_id)
    producer_id, epoch = expected
    is_present = producer_id == now.producer_id
    if not is_present and not (producer_id == now.last_producer_id and epoch >= LAST_EPOCH):
        raise _fenced(entry, epoch)
    if is_present and epoch == now.epoch:
        if now.is_exhausted:
            return Identity(new_producer_id(), 0, now.producer_id, now.epoch)
        return Identity(now.producer_id, now.epoch + 1, now.producer_id, now.epoch)
    if epoch == now.last_epoch:
        return now  # its bump was answered, and the answer lost
    raise _fenced(entry, epoch)


def check_producer(entry: TransactionalId | None, producer_id: int, epoch: int) -> TransactionalId:
    """The entry, if this is its present producer."""
    if entry is None or entry.present.producer_id != producer_id:
        raise BrokerError(
            Fault.INVALID_PRODUCER_ID_MAPPING, f"producer id {producer_id} does not belong to this transactional id"
        )
    if entry.present.epoch != epoch:
        raise _fenced(entry, epoch)
    if entry.is_prepared:
        raise _still_ending(entry)
    return entry


def of_batch(error: BrokerError, *, adds: bool) -> BrokerError:
    """What `check_producer` says, as clients understand it that produce. `adds`: as of TransactionalProducer."""
    if error.fault is Fault.PRODUCER_FENCED:
        return BrokerError(Fault.INVALID_PRODUCER_EPOCH, error.message)
    if error.fault is Fault.CONCURRENT_TRANSACTIONS and not adds:
        return BrokerError(Fault.NOT_ENOUGH_REPLICAS, error.message)  # which they try again after
    return error


def joining(entry: TransactionalId, asked: Join) -> tuple[list[tuple[int, int]], list[str], list[tuple[int, str]]]:
    """The places and the groups that are to become part of the transaction, and what may not, as of `Joined`."""
    places: list[tuple[int, int]] = []
    groups: list[str] = []
    refused: list[tuple[int, str]] = []
    for at, (number, index, begins) in enumerate(asked.places):
        if (number, index) in entry.partitions:
            continue
        if asked.adds and begins:
            places.append((number, index))
        else:
            fault = Fault.OUT_OF_ORDER_SEQUENCE_NUMBER if asked.adds else Fault.TRANSACTION_ABORTABLE
            refused.append((at, fault.name))
    for at, group in enumerate(asked.groups, len(asked.places)):
        if group not in entry.groups:
            if asked.adds:
                groups.append(group)
            else:
                refused.append((at, Fault.TRANSACTION_ABORTABLE.name))
    return places, groups, refused


def outcome(entry: TransactionalId | None, doubt: Doubt) -> Outcome:
    """Of what another shard has open of a transaction of this producer."""
    if entry is None:
        return Outcome.ABORTED
    if entry.is_ongoing or entry.is_prepared:
        is_part = doubt.group in entry.groups if doubt.group else (doubt.topic, doubt.index) in entry.partitions
        is_present = (entry.producer_id, entry.epoch) == (doubt.producer_id, doubt.epoch)
        return Outcome.OPEN if is_part and is_present else Outcome.ABORTED
    now = entry.identity
    is_last = (now.producer_id == doubt.producer_id and now.epoch in (doubt.epoch, doubt.epoch + 1)) or (
        now.last_producer_id == doubt.producer_id and now.last_epoch in (doubt.epoch, NO_EPOCH)
    )
    return Outcome.COMMITTED if is_last and entry.state is TransactionState.COMPLETE_COMMIT else Outcome.ABORTED


def check_present(entry: TransactionalId, producer_id: int, epoch: int) -> None:
    """Raises BrokerError(PRODUCER_FENCED) unless somebody who wants the next epoch is the present producer."""
    if (producer_id, epoch) != (entry.producer_id, entry.epoch):
        raise _fenced(entry, epoch)


def ended(
    entry: TransactionalId | None,
    producer_id: int,
    epoch: int,
    new_producer_id: NewProducerId,
    *,
    commit: bool,
    bumps: bool,
) -> Identity | None:
    """Who the producer is after EndTxn, or None where its transaction has ended like this already.

    `bumps`: the client knows that each end bumps the epoch (EndTxn from version 5 on).
    """
    if entry is None:
        raise BrokerError(Fault.INVALID_PRODUCER_ID_MAPPING, "this transactional id has no producer")
    if entry.is_prepared and _is_asked_again(entry, producer_id, epoch, bumps=bumps):
        raise _still_ending(entry) if entry.state is _prepared(commit=commit) else _nothing_to_end(entry, commit=commit)
    if not bumps:
        check_producer(entry, producer_id, epoch)
        if entry.is_ongoing:
            return entry.identity
        if entry.state is _complete(commit=commit):
            return None
        raise _nothing_to_end(entry, commit=commit)
    now = entry.present
    is_complete = entry.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    overflowed = is_complete and (now.last_producer_id, now.epoch) == (producer_id, 0) and epoch == LAST_EPOCH
    if now.producer_id != producer_id and not overflowed:
        raise BrokerError(
            Fault.INVALID_PRODUCER_ID_MAPPING, f"producer id {producer_id} does not belong to this transactional id"
        )
    is_retry = overflowed or (is_complete and epoch == now.epoch - 1)
    if is_retry:
        if entry.state is _complete(commit=commit):
            return None
        raise _nothing_to_end(entry, commit=commit)
    if epoch != now.epoch or entry.is_prepared:
        raise _fenced(entry, epoch)
    if commit and not entry.is_ongoing:
        raise _nothing_to_end(entry, commit=commit)
    # An abort where nothing is ongoing: the client cannot know whether its first batch has come, so it counts.
    return bumped(entry, new_producer_id)


def bumped(entry: TransactionalId, new_producer_id: NewProducerId) -> Identity:
    """Who the producer is after an end that bumps its epoch."""
    now = entry.identity
    if now.is_exhausted:
        return Identity(new_producer_id(), 0, now.producer_id, now.epoch)
    return Identity(now.producer_id, now.epoch + 1, NO_PRODUCER, now.epoch)


def marker_epoch(entry: TransactionalId, after: Identity) -> int:
    """The epoch in the markers of an end: the next one where it is bumped, so that they fence what comes late."""
    return entry.epoch if after == entry.identity else entry.epoch + 1


def after_marker(entry: TransactionalId, epoch: int) -> Identity:
    """Who the producer is after an end whose markers have this epoch."""
    if epoch == entry.epoch:
        return entry.identity
    return Identity(entry.producer_id, epoch, NO_PRODUCER, entry.epoch)


def _is_asked_again(entry: TransactionalId, producer_id: int, epoch: int, *, bumps: bool) -> bool:
    """Whether an end comes from the present producer, or from whoever asked for the end that bumps its epoch."""
    asking = (entry.identity, entry.present) if bumps else (entry.present,)
    return any((producer_id, epoch) == (each.producer_id, each.epoch) for each in asking)


def _prepared(*, commit: bool) -> TransactionState:
    return TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT


def _complete(*, commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT


def _fenced(entry: TransactionalId, epoch: int) -> BrokerError:
    return BrokerError(
        Fault.PRODUCER_FENCED, f"epoch {epoch} of transactional id '{entry.name}', current is {entry.present.epoch}"
    )


def _still_ending(entry: TransactionalId) -> BrokerError:
    return BrokerError(
        Fault.CONCURRENT_TRANSACTIONS, f"transactional id '{entry.name}' is {entry.state.value}: ask again soon"
    )


def _nothing_to_end(entry: TransactionalId, *, commit: bool) -> BrokerError:
    asked = "committed" if commit else "aborted"
    return BrokerError(
        Fault.INVALID_TXN_STATE, f"transactional id '{entry.name}' is {entry.state.value}: nothing can be {asked}"
    )
