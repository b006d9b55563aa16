"""Who is to hold what: an allocation strategy asked about a whole group.

Strategies know members by name: the instance id where there is one, since that outlives a restart, else the client id
and the member id, which a client makes up anew each time. What they are told of the present is the last assignment, not
what members have got of it so far.

A strategy that raises, or whose answer is nonsense, changes nothing: everybody keeps what the last assignment gave
them, without what is gone. The group says so (`problem`), so that the strategy is asked again.
"""

from __future__ import annotations

import logging
from itertools import repeat

from halfmoon.schema.groups import Place, Places
from halfmoon.services.groups.allocation import AnyAllocator, GroupMember, Queue, allocate_topics
from halfmoon.services.groups.consumer.model import ConsumerGroup, Wants
from halfmoon.services.groups.consumer.reconciliation import in_order
from halfmoon.services.groups.consumer.subscriptions import Subscriptions

log = logging.getLogger(__name__)

MAX_PROBLEM = 300
"""Characters of what is kept of an error's text."""


def assign(
    group: ConsumerGroup, name: str, allocator: AnyAllocator | None, subscriptions: Subscriptions, broker_name: str
) -> None:
    """Give everybody a target, of the topics in `group.topics`. The group says what went wrong, if anything did.

    Where the targets are those of the group epoch already, because the strategy failed then, it is a new epoch if it
    works now, and nothing if not. `broker_name`: what the queues are said to be on.
    """
    again = group.assignment_epoch == group.epoch
    try:
        if allocator is None:
            raise ValueError("no enabled plugin offers it")
        found = _ask(group, allocator, subscriptions, broker_name)
    except Exception as error:  # a plugin's; one group's members must not suffer more from it than they have to
        text = f"{type(error).__name__}: {error}"[:MAX_PROBLEM]
        problem = f"group '{group.name}' keeps its last assignment, because strategy {name} failed: {text}"
        if problem != group.problem:
            log.exception("event=allocation_failed group=%s assignor=%s", group.name, name)
        group.problem = problem
        if again:
            return
        found = {member_id: _existing(group, group.target(member_id)) for member_id in group.members}
    else:
        group.problem = None
        if again:
            group.bump()
    for member_id, places in found.items():
        group.set_target(member_id, places)
    group.assigned()


def _ask(
    group: ConsumerGroup, allocator: AnyAllocator, subscriptions: Subscriptions, broker_name: str
) -> dict[str, Places]:
    names = {number: topic for number in group.topics if (topic := subscriptions.topics.name(number)) is not None}
    numbers = {topic: number for number, topic in names.items()}
    members = member_names(group, subscriptions)
    ids = {str(member): member_id for member_id, member in members.items()}
    queues = {
        topic: list(map(Queue._make, zip(repeat(topic), repeat(broker_name), range(group.topics[numbers[topic]]))))
        for topic in sorted(numbers)
    }
    previous: dict[str, list[Queue]] = {}
    for member_id, places in group.targets.items() if getattr(allocator, "wants_previous", False) else ():
        previous[members[member_id]] = [
            Queue(names[number], broker_name, index)
            for number, index in in_order(places)
            if number in names and index < group.topics[number]
        ]
    assignment = allocate_topics(allocator, list(members.values()), queues, previous)
    return {
        ids[str(member)]: frozenset([(numbers[topic], index) for topic, _, index in owned])
        for member, owned in assignment.items()
    }


def names_of(group: ConsumerGroup, wants: Wants, subscriptions: Subscriptions) -> frozenset[str]:
    """The topics that members read who subscribe so."""
    names, regex = wants
    if regex and regex not in group.describes:  # since the start nobody was heard of who has it
        number = subscriptions.topics.number
        return subscriptions.names(names, regex, lambda name: number(name) in group.topics)
    return subscriptions.names(names, regex, group.describes.get(regex))


def member_names(group: ConsumerGroup, subscriptions: Subscriptions) -> dict[str, GroupMember]:
    """Member id → the member as strategies see it. No two have one name."""
    reads: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}
    found: dict[str, GroupMember] = {}
    taken: set[str] = set()
    for member_id in sorted(group.members):
        member = group.members[member_id]
        wants = (member.topics, member.regex)
        if wants not in reads:
            reads[wants] = names_of(group, wants, subscriptions)
        name = member.instance_id or (f"{member.client_id}-{member_id}" if member.client_id else member_id)
        while name in taken:
            name += f"-{member_id}"
        taken.add(name)
        found[member_id] = GroupMember(name, rack=member.rack, instance_id=member.instance_id, topics=reads[wants])
    return found


def _existing(group: ConsumerGroup, places: Places) -> Places:
    def exists(place: Place) -> bool:
        return place[1] < group.topics.get(place[0], 0)

    return frozenset(filter(exists, places))
