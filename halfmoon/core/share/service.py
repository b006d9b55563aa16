"""Share groups with a memory: what share partitions decide, carried out on the log.

A share partition (`share_partition.py`) is made from what the catalog remembers, when somebody fetches from it or it
owes dead letters. It lives in memory until its group has no session left and it holds nothing that the catalog does not
know. An operator may put another in its place at any moment, also while it is read for: one that is not at work any
more gives nothing out and writes nothing.

What it decides is a control record (`ShareChanged`) before anybody is told, so that a crash neither loses an
acknowledgement nor passes over a record that has none: what was acquired and not acknowledged is given out again. Where
a group begins is written down, too, when it first looks at a partition: Kafka works it out anew after a restart as long
as nothing was acknowledged, and with `latest` passes over what came meanwhile.

Locks end by the timers of core/groups/deadlines.py, one a share partition. They are not in the wheel of waiting
messages (core/due_times.py): a lock is over after a restart anyway, so it is in nobody's memory but ours.

Who waits for records (core/hold.py) waits for share partitions, and is woken in the order of coming as long as there is
something for the next: one record wakes one of two hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.groups.deadlines import Deadlines, Timer
from halfmoon.core.groups.messages import GroupListing
from halfmoon.core.share.dead_letters import DeadLetters
from halfmoon.core.share.ledger import FINISHED, OWED, Ledger, Mark, Saved
from halfmoon.core.share.membership import Beat, Pulse, ShareGroup, ShareMembers, Topics
from halfmoon.core.share.options import Options, resolve
from halfmoon.core.share.reading import Found, Loading, Lost, Reading
from halfmoon.core.share.sessions import ShareSession, ShareSessions
from halfmoon.core.share.share_partition import Acknowledgement, Demand, Extent, SharePartition
from halfmoon.core.share_settings import EARLIEST_MS, LATEST_MS, ShareSettings, reset_ms
from halfmoon.schema import control

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition


GROUP_TYPE = "share"
EMPTY = "Empty"
AGAIN_MS = 1_000
"""Where it cannot be written down that a member is gone, it is tried again after so long."""
LOOKS = 20
"""A fetch that finds nothing but holes and markers looks on so often before it returns to the loop."""


class Place(NamedTuple):
    """A partition of a group."""

    group: str
    partition: Partition


class Part(SharePartition):
    """A share partition at work."""

    __slots__ = ("is_loading", "place", "timer")

    def __init__(self, place: Place, start: int, saved: Sequence[Saved] = ()) -> None:
        super().__init__(start, saved)
        self.place = place
        self.timer: Timer[Part] = Timer(self)
        self.is_loading = False
        """Somebody reads for it from the disk; others do not, or they would read the same."""


class ShareService:
    """All share groups of a broker, as adapters see them. A mover (core/relay.py) writes the dead letters."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.settings: ShareSettings = broker.settings.groups.share
        self.sessions = ShareSessions(self.settings.max_sessions)
        self._parts: dict[str, dict[Partition, Part]] = {}
        self._by_partition: dict[Partition, dict[Part, None]] = {}
        self._locks: Deadlines[Part] = Deadlines()
        self._reading = Reading(broker)
        self.letters = DeadLetters(broker, self)
        self.members = ShareMembers(self._save_epoch, self.settings.max_size)
        self._saved_at = 0
        """Where the last epoch of a group is written down."""

    def restore(self) -> None:
        """Take up what the log remembers of groups. Called once, before the first request."""
        self.members.restore(self._broker.state.share.epochs)

    def start(self) -> None:
        """Take up what is owed since the last time."""
        for group, ledgers in self._broker.state.share.ledgers.items():
            for (number, index), ledger in ledgers.items():
                partition = self._broker.catalog.partition(number, index)
                part = None if partition is None or not ledger.owes else self.known(group, partition)
                if part is not None:
                    self.letters.owe(part)
        self._broker.relays.add(self.letters, self.letters)

    def options(self, group: str) -> Options:
        return resolve(group, self.settings, self._broker.group_configs.rules(group))

    # -- share partitions ----------------------------------------------------------------------------------------------

    def parts(self, group: str) -> list[Part]:
        """Those at work."""
        return list(self._parts.get(group, {}).values())

    def is_at_work(self, part: Part) -> bool:
        """Whether no other has taken its place."""
        return self._parts.get(part.place.group, {}).get(part.place.partition) is part

    def known(self, group: str, partition: Partition) -> Part | None:
        """What the group knows of a partition, at work from now on; None if it has never looked at it, or the topic is
        gone."""
        part = self._parts.get(group, {}).get(partition)
        if part is not None:
            return part
        ledger = self._remembered(group, partition)
        return None if ledger is None else self._add(Part(Place(group, partition), ledger.start, ledger.saved()))

    def seen(self, group: str, partition: Partition) -> SharePartition | None:
        """As `known`, to be looked at only."""
        part = self._parts.get(group, {}).get(partition)
        if part is not None:
            return part
        ledger = self._remembered(group, partition)
        return None if ledger is None else SharePartition(ledger.start, ledger.saved())

    def _remembered(self, group: str, partition: Partition) -> Ledger | None:
        return self._broker.state.share.ledgers.get(group, {}).get((partition.topic.number, partition.index))

    def _add(self, part: Part) -> Part:
        group, partition = part.place
        self._parts.setdefault(group, {})[partition] = part
        self._by_partition.setdefault(partition, {})[part] = None
        return part

    def _remove(self, part: Part) -> None:
        group, partition = part.place
        of_group, of_partition = self._parts[group], self._by_partition[partition]
        del of_group[partition], of_partition[part]
        if not of_group:
            del self._parts[group]
        if not of_partition:
            del self._by_partition[partition]
        self._locks.cancel(part.timer)

    def put_away(self, parts: Iterable[Part]) -> None:
        """Forget those that nobody needs in memory."""
        for part in parts:
            if self.sessions.any_of(part.place.group) or part.is_loading or part.has_acquired or part.owes:
                continue
            if self.is_at_work(part):
                self._forget([part])

    def begin(self, group: str, partition: Partition, options: Options) -> Part | Callable[[], int]:
        """What the group knows of a partition, from now on if it has never looked at it. A function is to be run in a
        thread; what it returns is where to begin (`begin_at`). Raises BrokerError."""
        part = self.known(group, partition)
        if part is not None:
            return part
        ago_ms = reset_ms(options.auto_offset_reset)
        if ago_ms == EARLIEST_MS:
            return self.begin_at(group, partition, partition.start_offset)
        latest = partition.high_watermark
        if ago_ms in (LATEST_MS, None):
            return self.begin_at(group, partition, latest)
        search = self._broker.batch_for_time(partition, self._broker.clock.wall_ms() - (ago_ms or 0))
        if search is None:
            return self.begin_at(group, partition, latest)
        found = search

        def load() -> int:
            place = found()
            return latest if place is None else place[0]

        return load

    def begin_at(self, group: str, partition: Partition, offset: int) -> Part:
        """Raises BrokerError."""
        part = self.known(group, partition)
        if part is None:
            record = control.ShareChanged(group, partition.topic.number, partition.index, offset, [])
            self._broker.append_control(record)
            part = self._add(Part(Place(group, partition), offset))
        return part

    # -- fetching ------------------------------------------------------------------------------------------------------

    def fetch(
        self, part: Part, member: str, demand: Demand, max_bytes: int, options: Options
    ) -> Found | Loading | None:
        """Give out some records. `Loading` is to be run in a thread, and its result handed to `loaded`; None if there
        is nothing now, or (`could_give` says which) only what nobody is to get has been seen so far. Raises
        BrokerError."""
        committed = options.committed_only
        for _ in range(LOOKS):
            wanted = self._wanted(part, demand.max_records, options)
            if wanted is None:
                return None
            first, end, limit = wanted
            found = self._reading.read(part.place.partition, first, end, limit, max_bytes, committed=committed)
            if isinstance(found, Loading):
                part.is_loading = True
                return found
            if isinstance(found, Found):
                if self._give_out(part, member, found, demand, options).acquired:
                    return found
                continue
            if isinstance(found, Lost):
                self._broker.logger.error(
                    "event=share_lost group=%s partition=%r first=%d count=%d reason=a damaged disk",
                    *part.place, found.first, found.end - found.first,
                )  # fmt: skip
            part.pass_over([found])
        return None

    def _wanted(self, part: Part, max_records: int, options: Options) -> tuple[int, int, int] | None:
        """Where to read for so many records: offsets [first, end), and the limit up to which the group reads. None if
        there is nothing to be given out."""
        if part.is_loading:
            return None
        partition = part.place.partition
        lost = part.drop_below(partition.start_offset)
        if lost:
            self._broker.logger.error("event=dead_letters_lost group=%s partition=%r count=%d", *part.place, lost)
            self.letters.unwritten += lost
        limit = partition.stable_offset if options.committed_only else partition.high_watermark
        wanted = part.wanted(max_records, options.terms.max_locks)
        if wanted is None or wanted[0] >= limit:
            return None
        return wanted[0], min(wanted[1], limit), limit

    def could_give(self, part: Part, options: Options) -> bool:
        """Whether a fetch has something to look at now."""
        return self._wanted(part, 1, options) is not None

    def loaded(
        self, part: Part, member: str, loading: Loading, slices: Sequence[memoryview], demand: Demand, options: Options
    ) -> Found:
        """The reading that `fetch` has asked for is done."""
        part.is_loading = False
        found = loading.found
        if self.is_at_work(part):
            found.slices = slices
            self._give_out(part, member, found, demand, options)
            self._wake(part)
        return found

    def not_loaded(self, part: Part) -> None:
        """It has failed, or nobody wants it any more."""
        part.is_loading = False
        self._wake(part)
        self.put_away([part])

    def _give_out(self, part: Part, member: str, found: Found, demand: Demand, options: Options) -> Found:
        part.pass_over(list(found.for_nobody()))
        found.acquired = part.acquire(member, found.batches, demand, options.terms, self._broker.clock.mono_ms())
        if part.next_deadline_ms is not None:
            self._watch(part)
        return found.cut()

    def _wake(self, part: Part) -> None:
        """Wake who waits for the share partition, one after the other, as long as there is something for the next."""
        hold = self._broker.hold
        waiting = hold.waiting(part)
        if waiting:
            options = self.options(part.place.group)
            for held in waiting:
                if not self.could_give(part, options):
                    return
                hold.wake(held)

    def arrived(self, partitions: Iterable[Partition]) -> None:
        """Something has become visible in these."""
        if self._by_partition:
            for partition in partitions:
                for part in list(self._by_partition.get(partition, ())):
                    self._wake(part)

    def _watch(self, part: Part) -> None:
        if part.next_deadline_ms is None:
            self._locks.cancel(part.timer)
        elif part.timer.deadline_ms != part.next_deadline_ms:
            self._locks.set(part.timer, part.next_deadline_ms)
            self._broker.on_deadline(part.next_deadline_ms)

    # -- what becomes of records ---------------------------------------------------------------------------------------

    def acknowledge(self, part: Part, member: str, batches: Sequence[Acknowledgement], options: Options) -> int:
        """Returns the log position to wait for. Raises BrokerError, and nothing is changed then."""
        mark = part.mark()
        changed = part.acknowledge(member, batches, options.terms, self._broker.clock.mono_ms())
        if changed:
            return self._write(part, mark, changed)
        self._watch(part)
        return 0

    def _write(self, part: Part, mark: Mark, changed: list[Saved]) -> int:
        group, partition = part.place
        record = control.ShareChanged(group, partition.topic.number, partition.index, part.start, changed)
        try:
            position = self._broker.append_control(record)
        except BrokerError:
            part.back_to(mark)
            raise
        self._settled(part, changed)
        return position

    def _settled(self, part: Part, changed: list[Saved]) -> None:
        self._watch(part)
        if any(state in OWED for _, _, state, _ in changed):
            self.letters.owe(part)
        self._wake(part)

    def _note(self, part: Part, changed: list[Saved]) -> None:
        """Nobody waits for it to be written: without it, records are given out once more after a crash."""
        if not changed:
            self._watch(part)
            return
        group, partition = part.place
        record = control.ShareChanged(group, partition.topic.number, partition.index, part.start, changed)
        try:
            self._broker.append_control(record)
        except BrokerError as error:
            self._broker.logger.error("share state not written: group=%s partition=%r error=%s", *part.place, error)
        self._settled(part, changed)

    def release(self, group: str, member: str) -> None:
        """The member is gone: what it holds is available again."""
        options = self.options(group)
        parts = self.parts(group)
        for part in parts:
            self._note(part, part.release(member, options.terms))
        self.put_away(parts)

    def buried(self, part: Part, extents: Sequence[Extent]) -> None:
        """Dead letters of these are in the log."""
        part.buried(extents)
        self._wake(part)

    def bury_unwritten(self, part: Part, first: int, end: int) -> None:
        """No dead letters can be written of these. Raises BrokerError."""
        mark = part.mark()
        owed = [run for run in part.between(first, end) if run.state in OWED]
        part.buried([Extent(first, end)])
        self._write(part, mark, [(max(run.first, first), min(run.end, end), FINISHED, 0) for run in owed])

    # -- sessions ------------------------------------------------------------------------------------------------------

    def end_session(self, session: ShareSession) -> None:
        self.sessions.end(session)
        self.release(session.group, session.member)

    def drop(self, owner: object) -> None:
        """A connection is gone, and its sessions with it."""
        for session in self.sessions.of_owner(owner):
            self.end_session(session)

    def member_gone(self, group: str, member: str) -> None:
        session = self.sessions.get(group, member)
        if session is not None:
            self.sessions.end(session)
        self.release(group, member)

    # -- membership ----------------------------------------------------------------------------------------------------

    def _save_epoch(self, group: str, epoch: int) -> None:
        self._saved_at = self._broker.append_control(control.ShareGroupSaved(group, epoch))

    def _topics(self) -> Topics:
        catalog = self._broker.catalog

        def find(name: str) -> tuple[bytes, int] | None:
            topic = catalog.by_name.get(name)
            return None if topic is None or topic.internal else (topic.id, len(topic.partitions))

        return Topics(catalog.changes, find)

    def heartbeat(self, beat: Beat) -> tuple[Pulse, int]:
        """The answer, and the log position to wait for before it is given. Raises BrokerError."""
        self.check_name(beat.group)
        options = self.options(beat.group)
        now_ms = self._broker.clock.mono_ms()
        pulse = self.members.heartbeat(beat, self._topics(), options.session_timeout_ms, now_ms)
        self._broker.on_deadline(now_ms + options.session_timeout_ms)
        return pulse, self._saved_at

    def leave(self, group: str, member: str) -> int:
        """Returns the log position to wait for. Raises BrokerError."""
        self.members.leave(group, member, self._topics())
        self.member_gone(group, member)
        return self._saved_at

    def group(self, name: str) -> ShareGroup | None:
        return self.members.groups.get(name)

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        found = (self._locks.next_deadline(), self.members.next_deadline())
        return min((deadline_ms for deadline_ms in found if deadline_ms is not None), default=None)

    def expire(self, mono_ms: int) -> None:
        """Take back what was held for too long, and what those held who were silent for too long."""
        for timer in self._locks.due(mono_ms):
            part = timer.action
            self._note(part, part.expire(self.options(part.place.group).terms, mono_ms))
            self.put_away([part])
        for group, member in self.members.expire(self._topics(), mono_ms, AGAIN_MS):
            self.member_gone(group, member)

    # -- operators -----------------------------------------------------------------------------------------------------

    def forget_topic(self, partitions: Sequence[Partition]) -> None:
        """The topic is deleted."""
        for partition in partitions:
            self._forget(list(self._by_partition.get(partition, ())))

    def _forget(self, parts: Sequence[Part]) -> None:
        """Who waits for them looks anew."""
        for part in parts:
            self._remove(part)
        for part in parts:
            self._broker.hold.wake_partition(part)

    def _at_work(self, group: str, partitions: Iterable[Partition]) -> list[Part]:
        parts = self._parts.get(group, {})
        return [parts[partition] for partition in partitions if partition in parts]

    def reset(self, group: str, starts: Sequence[tuple[Partition, int]]) -> int:
        """The group begins there, whatever it has done before; returns the log position to wait for. Raises
        BrokerError."""
        record = control.ShareReset(group, [(p.topic.number, p.index, offset) for p, offset in starts])
        position = self._broker.append_control(record)
        self._forget(self._at_work(group, [partition for partition, _ in starts]))
        return position

    def forget(self, group: str, partitions: Sequence[Partition]) -> int:
        """The group knows nothing of these any more; returns the log position to wait for. Raises BrokerError."""
        record = control.ShareForgotten(group, [(p.topic.number, p.index) for p in partitions])
        position = self._broker.append_control(record)
        self._forget(self._at_work(group, partitions))
        return position

    def delete(self, group: str) -> int:
        """Forget a group that has no members; returns the log position to wait for. Raises BrokerError."""
        position = self._broker.append_control(control.GroupDeleted(group))
        self._forget(self.parts(group))
        self.members.forget(group)
        return position

    def exists(self, group: str) -> bool:
        state = self._broker.state.share
        return group in state.epochs or group in state.ledgers

    def looked_at(self, group: str) -> list[Partition]:
        """The partitions of which the group knows something."""
        catalog = self._broker.catalog
        found = (catalog.partition(*place) for place in self._broker.state.share.ledgers.get(group, {}))
        return [partition for partition in found if partition is not None]

    def listed(self) -> list[GroupListing]:
        """All share groups, for people."""
        state = self._broker.state.share
        found = []
        for name in sorted({*state.epochs, *state.ledgers}):
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
        groups = self._broker.groups
        if self.exists(group):
            return
        if groups.describe(group) is not None or groups.describe_consumer(group) is not None:
            raise BrokerError(Fault.GROUP_ID_NOT_FOUND, f"Group {group} is not a share group.")
