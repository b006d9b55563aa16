"""A member's next step from what it holds to what it is to hold (CurrentAssignmentBuilder).

A place moves from one member to another in three steps, each told by the answer to a heartbeat: its owner is told to
give it up, says that it has done so, and only then does it go to the new owner. So at no time two members read it, and
nobody stops reading what stays its own.

    stable       it has reached the epoch of the assignment, or will now
    unrevoked    it keeps its epoch until it has given up what it is to give up
    unreleased   it has the assignment's epoch; what others have not given up yet comes with later heartbeats

Only what a member says after it was told counts: that it does not hold something (`owned`; None: it does not say) may
also mean that it has not begun to read it yet. Kafka believes it at once, and two may read then. What was of a topic
that is gone need not be given up: nobody will get that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from halfmoon.schema.groups import STABLE, UNRELEASED, UNREVOKED, ConsumerMember, Holding, Place, Places

OwnerOf = Callable[[Place], str | None]
"""The member that holds a place, if any does."""
Exists = Callable[[int], bool]
"""Whether there is a topic of this number."""


def is_reconciled(member: ConsumerMember, epoch: int) -> bool:
    """Whether the member has all that the assignment of this epoch gives it."""
    return member.state == STABLE and member.epoch == epoch


def reconcile(
    member: ConsumerMember, epoch: int, target: Places, owned: Places | None, owner_of: OwnerOf, exists: Exists
) -> ConsumerMember:
    """The member after its next step towards `target`, the assignment of `epoch`."""
    if member.state == UNREVOKED:
        if _still_holds(member.revoking, owned):
            return member
        return _next(member, member.epoch + 1, epoch, target, owner_of, exists)
    if is_reconciled(member, epoch):
        return member
    return _next(member, member.epoch, epoch, target, owner_of, exists)


def _next(
    member: ConsumerMember,
    own_epoch: int,
    epoch: int,
    target: Places,
    owner_of: OwnerOf,
    exists: Exists,
) -> ConsumerMember:
    kept = tuple(holding for holding in member.assigned if holding[:2] in target)
    lost = tuple(holding for holding in member.assigned if holding[:2] not in target and exists(holding[0]))
    if lost:
        return _moved(member, own_epoch, state=UNREVOKED, assigned=kept, revoking=lost)
    missing = target.difference(holding[:2] for holding in kept)
    mine = None, member.member_id
    free = [place for place in missing if owner_of(place) in mine]
    new = [(number, index, epoch) for number, index in in_order(free)]
    assigned = tuple(sorted((*kept, *new)) if kept else new)
    state = STABLE if len(free) == len(missing) else UNRELEASED
    return _moved(member, epoch, state=state, assigned=assigned, revoking=())


def in_order(places: Iterable[Place]) -> list[Place]:
    """Sorted: numbers are compared, not pairs, since there may be 10,000."""
    by_topic: dict[int, list[int]] = {}
    for number, index in places:
        if number in by_topic:
            by_topic[number].append(index)
        else:
            by_topic[number] = [index]
    return [(number, index) for number in sorted(by_topic) for index in sorted(by_topic[number])]


def _moved(
    member: ConsumerMember, epoch: int, *, state: str, assigned: tuple[Holding, ...], revoking: tuple[Holding, ...]
) -> ConsumerMember:
    if (epoch, state, assigned, revoking) == (member.epoch, member.state, member.assigned, member.revoking):
        return member
    return replace(member, epoch=epoch, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)


def _still_holds(places: Iterable[Holding], owned: Places | None) -> bool:
    return owned is None or any(holding[:2] in owned for holding in places)
