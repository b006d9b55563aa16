"""A group changes its protocol while members live (KIP-848, group.consumer.migration.policy).

    upgrade      a member of the new protocol comes to a classic group: its members stay, with the shares that they
                 have, and are told to join again by their next heartbeats
    downgrade    the last member of the new protocol goes, and classic ones are left: their coordinator takes over, with
                 the shares that they are to have, and starts a rebalance

The group epoch goes on where the generation was, and the other way round, so no number comes again. Each change is one
record: the group is of one kind or of the other whenever the broker stops.
"""

from __future__ import annotations

from msgspec.structs import replace

from halfmoon.schema.groups import UNREVOKED, ClassicSide, ConsumerMember, Place
from halfmoon.services.groups.consumer.classic import places_of, share_bytes, version_of
from halfmoon.services.groups.consumer.model import ConsumerGroup
from halfmoon.services.groups.consumer.subscriptions import Topics
from halfmoon.services.groups.consumer_protocol import Subscription, parse_assignment, parse_subscription
from halfmoon.services.groups.messages import UNKNOWN_MEMBER, Join
from halfmoon.services.groups.model import Group, State
from halfmoon.services.groups.rebalance import Rebalances
from halfmoon.services.groups.step import Step
from halfmoon.services.groups.subscription import CONSUMER_PROTOCOL_TYPE


def upgraded(classic: Group, topics: Topics) -> ConsumerGroup | None:
    """The group with its members, as one of the new protocol; None where their metadata cannot be read, or their leader
    tells them more than partitions, which nobody else could (Kafka Streams)."""
    if classic.members and classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    group = ConsumerGroup(classic.name, classic.generation)
    unsynced: list[tuple[str, Subscription]] = []
    taken: set[Place] = set()
    for member in classic.members.values():
        protocols = member.protocols
        if any(name == classic.protocol for name, _ in protocols):
            # The one that the group has agreed on comes first: the member knows its assignor by it.
            protocols = tuple(sorted(protocols, key=lambda each: each[0] != classic.protocol))
        subscription = version_of(protocols)
        share = parse_assignment(member.assignment)
        if subscription is None or share is None:
            return None
        places = places_of(share or _claimed(classic, subscription), topics) - taken
        taken |= places
        group.put(
            ConsumerMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack=subscription.rack,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                topics=tuple(sorted(set(subscription.topics))),
                epoch=classic.generation,
                previous_epoch=classic.generation,
                assigned=tuple(sorted((number, index, classic.generation) for number, index in places)),
                classic=ClassicSide(member.session_timeout_ms, protocols),
            )
        )
        group.set_target(member.member_id, places)
        if member.member_id in classic.unsynced:
            unsynced.append((member.member_id, subscription))
    for member_id, subscription in unsynced:
        # It has not been told of its share yet, and if it is cooperative it goes on with what it had.
        reads = places_of(subscription.owned, topics) - taken
        if reads:
            taken |= reads
            revoking = tuple(sorted((number, index, classic.generation) for number, index in reads))
            group.put(replace(group.members[member_id], state=UNREVOKED, revoking=revoking))
    return group


def _claimed(classic: Group, subscription: Subscription) -> dict[str, list[int]]:
    """What a member of a group in the middle of a rebalance says that it holds, where nothing else is known of that."""
    return {} if classic.state is State.STABLE else subscription.owned


def downgraded(group: ConsumerGroup, rebalances: Rebalances, topics: Topics, step: Step) -> Group:
    """The group with its members, all of them classic, as a classic one."""
    classic = rebalances.new_group(group.name)
    classic.generation = group.epoch
    for member in group.members.values():
        side = member.classic
        assert side is not None
        kept = rebalances.new_member(
            classic,
            member.member_id,
            Join(
                group=group.name,
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=side.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=side.protocols,
            ),
        )
        # What it may still be reading; while the group rebalances nothing is taken from it.
        kept.assignment = share_bytes(member.holds(), parse_subscription(side.protocols[0][1]), topics)
        classic.add(kept)
        rebalances.touch(kept, step)
    assert classic.leader != UNKNOWN_MEMBER
    classic.protocol = classic.select_protocol()
    classic.restore_topics()
    classic.enter(State.STABLE)
    return classic
