"""Share groups with a memory, as adapters see them: sessions, members, and what operators change.

What happens to records is `delivery`; dead letters are written by `dead_letters`. Whether another kind of group has a
name is asked of groups.names, the one thing that is known here of other groups.

Where several logs share topics there is one of these for each. What a group does with a partition stands in the log of
the partition; who its members are, and that it exists, in the log that coordinates it. Sessions may be about partitions
of several: those of one process have them in common (`join`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from halfmoon.core.append import Appender
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature, TopicPolicy
from halfmoon.core.timers import Timers
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.services.groups.names import GroupListing, GroupNames
from halfmoon.services.share import metrics
from halfmoon.services.share.dead_letters import DeadLetters
from halfmoon.services.share.delivery import ShareDelivery
from halfmoon.services.share.membership import HeartbeatRequest, HeartbeatResponse, ShareGroup, ShareMembers, Topics
from halfmoon.services.share.sessions import ShareSession, ShareSessions
from halfmoon.services.share.state import ShareState

GROUP_TYPE = "share"
EMPTY = "Empty"
AGAIN_MS = 1_000
"""Where it cannot be written down that a member is gone, it is tried again after so long."""


WhenDurable = Callable[[int, Callable[[BrokerError | None], None]], None]
"""As of Turn."""


class Progress(NamedTuple):
    """Of a group in a partition: from where on it has not finished, and how many records that are."""

    start: int
    lag: int


class ShareService:
    """All share groups of a broker."""

    def __init__(
        self,
        state: ShareState,
        catalog: Catalog,
        delivery: ShareDelivery,
        dead_letters: DeadLetters,
        appender: Appender,
        timers: Timers,
        clock: Clock,
        names: GroupNames,
        when_durable: WhenDurable,
        max_size: int,
    ) -> None:
        """`max_size`: members of a group at most."""
        self._state = state
        self._catalog = catalog
        self.delivery = delivery
        self.dead_letters = dead_letters
        self._parts = delivery.parts
        self.sessions = delivery.parts.sessions
        self.options = delivery.options.of
        self._appender = appender
        self._timers = timers
        self._clock = clock
        self._names = names
        self._when_durable = when_durable
        self.members = ShareMembers(self._save_epoch, max_size)
        self._deliveries: Sequence[ShareDelivery] = (delivery,)
        """Of all logs that have the sessions in common."""
        self._counts_sessions = True
        self._is_whole = True
        """This log has everything that groups do; where it is one of several, a group may be coordinated elsewhere."""
        self._on_member_gone: Callable[[str, str], None] = _nobody_else
        self._saved_at = 0
        """Where the last epoch of a group is written down."""
        names.register(self)

    def feature(self) -> Feature:
        return Feature(
            "share",
            restore=self.restore,
            start=self.dead_letters.start,
            timed=self,
            arrived=self.delivery.arrived,
            families=metrics.FAMILIES,
            read_metrics=partial(metrics.read, self),
            topics=TopicPolicy(deleted=lambda topic: self._forget_topic(topic.partitions)),
        )

    def restore(self) -> None:
        """Take up what the log remembers of groups. Called once, before the first request."""
        self.members.restore(self._state.epochs)

    def join(
        self,
        sessions: ShareSessions,
        deliveries: Sequence[ShareDelivery],
        on_member_gone: Callable[[str, str], None],
        *,
        counts_sessions: bool,
    ) -> None:
        """This is one of several logs: those of this process have these sessions in common, which one of them counts.
        `on_member_gone` tells the others of a member that was silent for too long. Once, before the first request."""
        self.sessions = self._parts.sessions = sessions
        self._deliveries = deliveries
        self._on_member_gone = on_member_gone
        self._counts_sessions = counts_sessions
        self._is_whole = False

    # -- sessions ------------------------------------------------------------------------------------------------------

    @property
    def session_count(self) -> int:
        return len(self.sessions) if self._counts_sessions else 0

    def end_session(self, session: ShareSession) -> None:
        self.sessions.end(session)
        self._release(session.group, session.member)

    def _release(self, group: str, member: str) -> None:
        for delivery in self._deliveries:
            delivery.release(group, member)

    def drop(self, owner: object) -> None:
        """A connection is gone, and its sessions with it."""
        for session in self.sessions.of_owner(owner):
            self.end_session(session)

    def member_gone(self, group: str, member: str) -> None:
        session = self.sessions.get(group, member)
        if session is not None:
            self.sessions.end(session)
        self._release(group, member)

    # -- membership ----------------------------------------------------------------------------------------------------

    def _save_epoch(self, group: str, epoch: int) -> None:
        self._saved_at = self._appender.append_control(control.ShareGroupSaved(group, epoch))

    def _topics(self) -> Topics:
        catalog = self._catalog

        def find(name: str) -> tuple[bytes, int] | None:
            topic = catalog.by_name.get(name)
            return None if topic is None or topic.internal else (topic.id, len(topic.partitions))

        return Topics(catalog.changes, find)

    def heartbeat(self, request: HeartbeatRequest) -> tuple[HeartbeatResponse, int]:
        """The answer, and the log position to wait for before it is given. Raises BrokerError."""
        self.check_name(request.group)
        options = self.options(request.group)
        now_ms = self._clock.mono_ms()
        response = self.members.heartbeat(request, self._topics(), options.session_timeout_ms, now_ms)
        self._timers.arm(now_ms + options.session_timeout_ms)
        return response, self._saved_at

    def leave(self, group: str, member: str) -> int:
        """Returns the log position to wait for. Raises BrokerError.

        Its session does not end with that, nor what it holds is released: librdkafka leaves by one connection while it
        acknowledges by another (ShareSessionCache knows of no membership, either)."""
        self.members.leave(group, member, self._topics())
        if self.sessions.get(group, member) is None:
            self._release(group, member)
        return self._saved_at

    def make(self, group: str) -> int:
        """There is such a group from now on, also if it never has a member; returns the log position to wait for.
        Raises BrokerError."""
        if group not in self._state.epochs:
            self._save_epoch(group, 0)
            self.members.restore({group: 0})
        return self._saved_at

    def group(self, name: str) -> ShareGroup | None:
        return self.members.groups.get(name)

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        found = (self._parts.locks.next_deadline(), self.members.next_deadline())
        return min((deadline_ms for deadline_ms in found if deadline_ms is not None), default=None)

    def put_off(self, by_ms: int) -> None:
        """The clock has leapt, which is nobody's silence; what is acquired is held no longer for that."""
        self.members.put_off(by_ms)

    def expire(self, mono_ms: int) -> None:
        """Take back what was held for too long, and what those held who were silent for too long."""
        self.delivery.expire(mono_ms)
        gone = self.members.expire(self._topics(), mono_ms, AGAIN_MS)
        if gone:
            self._when_durable(self._saved_at, partial(self._are_gone, gone))

    def _are_gone(self, gone: Sequence[tuple[str, str]], error: BrokerError | None) -> None:
        """Not before it is durable: the log may be another process's by now, where they are members."""
        if error is None:
            for group, member in gone:
                self.member_gone(group, member)
                self._on_member_gone(group, member)

    # -- operators -----------------------------------------------------------------------------------------------------

    def _forget_topic(self, partitions: Sequence[Partition]) -> None:
        """The topic is deleted."""
        for partition in partitions:
            self.delivery.forget(self._parts.of_partition(partition))

    def reset(self, group: str, starts: Sequence[tuple[Partition, int]]) -> int:
        """Reset the group: it begins there, whatever it has done before; returns the log position to wait for. Raises
        BrokerError."""
        record = control.ShareReset(group, [(p.topic.number, p.index, offset) for p, offset in starts])
        position = self._appender.append_control(record)
        self.delivery.forget(self._parts.at(group, [partition for partition, _ in starts]))
        return position

    def forget(self, group: str, partitions: Sequence[Partition]) -> int:
        """The group knows nothing of these any more; returns the log position to wait for. Raises BrokerError."""
        record = control.ShareForgotten(group, [(p.topic.number, p.index) for p in partitions])
        position = self._appender.append_control(record)
        self.delivery.forget(self._parts.at(group, partitions))
        return position

    def delete(self, group: str) -> int | None:
        """Remove a group that has no members; the log position to wait for, or None if there is no such group. Raises
        BrokerError."""
        if not self.exists(group):
            return None
        self.check_empty(group)
        position = self._appender.append_control(control.GroupDeleted(group))
        self.delivery.forget(self._parts.of_group(group))
        self.members.forget(group)
        return position

    def exists(self, group: str) -> bool:
        state = self._state
        return group in state.epochs or (self._is_whole and group in state.delivery_states)

    def forget_group(self, group: str) -> int:
        """The group, which is coordinated by another log, is deleted; returns the log position to wait for. Raises
        BrokerError."""
        if group not in self._state.delivery_states:
            return 0
        position = self._appender.append_control(control.GroupDeleted(group))
        self.delivery.forget(self._parts.of_group(group))
        return position

    def progress(self, group: str, partition: Partition) -> Progress | None:
        """None where the group has never looked at the partition."""
        part = self._parts.seen(group, partition)
        if part is None:
            return None
        start = max(part.start, partition.start_offset)
        return Progress(start, max(0, partition.high_watermark - start - part.finished_above))

    def looked_at(self, group: str) -> list[Partition]:
        """The partitions of which the group knows something."""
        catalog = self._catalog
        found = (catalog.partition(*place) for place in self._state.delivery_states.get(group, {}))
        return [partition for partition in found if partition is not None]

    def listed(self, types: Sequence[str]) -> list[GroupListing]:
        """See GroupKind."""
        if types and GROUP_TYPE not in types:
            return []
        state = self._state
        found = []
        for name in sorted({*state.epochs, *(state.delivery_states if self._is_whole else ())}):
            group = self.members.groups.get(name)
            described = EMPTY if group is None else group.state
            found.append(GroupListing(name, GROUP_TYPE, described, GROUP_TYPE))
        return found

    def check_changeable(self, group: str) -> None:
        """Raises BrokerError unless there is such a group, without members."""
        if not self.exists(group):
            raise BrokerError(Fault.GROUP_ID_NOT_FOUND, f"Group {group} not found.")
        self.check_empty(group)

    def check_empty(self, group: str) -> None:
        """Raises BrokerError(NON_EMPTY_GROUP)."""
        if self.members.has_members(group):
            raise BrokerError(Fault.NON_EMPTY_GROUP, "The group is not empty.")

    def check_name(self, group: str) -> None:
        """Raises BrokerError if a group of another kind has that name."""
        if not self.exists(group) and self._names.taken_by_another(group, self):
            raise BrokerError(Fault.GROUP_ID_NOT_FOUND, f"Group {group} is not a share group.")


def within(partition: Partition, offset: int) -> int:
    """The nearest offset at which a group may begin there."""
    return min(max(offset, partition.start_offset), partition.high_watermark)


def _nobody_else(_group: str, _member: str) -> None:
    """All that the member holds is known here."""
