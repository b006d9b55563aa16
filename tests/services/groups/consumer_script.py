"""A coordinator of consumer groups at a certain time, driven by lines of text: what transcripts are made of.

Commands (key=value, in any order; group=g unless said). Shares are written t:0,1+u:0, nothing is `-`.
    topic NAME PARTITIONS         make or grow one (`!NAME`: an internal one)         drop NAME
    beat MEMBER [epoch=0] [topics=t,u|-] [regex=] [owns=t:0] [instance=] [assignor=] [rack=] [timeout=60000] [client=]
         a heartbeat. With epoch 0 it has what a join must have: topics=t, owns=-, timeout; `bare` leaves that out
    join TAG / sync TAG / alive / leave     the classic protocol: as in test_groups_transcripts,
         protocols=range:t/u!t:0,1 (subscription t and u, owning t:0,1)
    commit [member=] [epoch=] [transactional] [old]      stale member= epoch= places=t:0,1      fetch member= epoch=
    tick MS        restart        describe        list [states=] [types=]        delete        settings KEY=VALUE…
    fail / mend    the strategies raise, or do not any more
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence

from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.range import range_
from halfmoon.plugins.allocate.uniform import uniform
from halfmoon.schema.groups import ConsumerGroupChange, GroupRecord, Places, Protocols
from halfmoon.services.groups.allocation import AnyAllocator, Assignment, Queue
from halfmoon.services.groups.consumer.messages import ConsumerHeartbeat
from halfmoon.services.groups.consumer.persisted import PersistedGroup
from halfmoon.services.groups.consumer.settings import ConsumerSettings
from halfmoon.services.groups.consumer_protocol import parse_assignment
from halfmoon.services.groups.coordination import Coordination
from halfmoon.services.groups.messages import (
    ConsumerHeartbeatResult,
    Effect,
    GroupSettings,
    JoinResult,
    Persist,
    SyncResult,
)
from tests.services.groups.group_script import GroupScript, fault


class FakeTopics:
    """Topics without a catalog."""

    def __init__(self) -> None:
        self.changes = 0
        self.sizes: dict[int, tuple[str, int]] = {}
        self.numbers: dict[str, int] = {}
        self._next = 1

    def make(self, name: str, partitions: int) -> None:
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = self._next
            self._next += 1
        self.sizes[number] = name, partitions
        self.changes += 1

    def drop(self, name: str) -> None:
        del self.sizes[self.numbers.pop(name)]
        self.changes += 1

    def number(self, name: str) -> int | None:
        return self.numbers.get(name)

    def name(self, number: int) -> str | None:
        return self.sizes[number][0] if number in self.sizes else None

    def partitions(self, number: int) -> int:
        return self.sizes[number][1] if number in self.sizes else 0

    def names(self) -> Iterable[str]:
        return [name for name in self.numbers if not name.startswith("!")]


def breakable(allocator: AnyAllocator, is_broken: Callable[[], bool]) -> AnyAllocator:
    """The same strategy, but it raises while it is broken."""

    class Breakable:
        wants_all_topics = getattr(allocator, "wants_all_topics", False)
        wants_previous = True

        def __call__(
            self,
            members: Sequence[str],
            queues: Sequence[Queue],
            previous: Mapping[str, Sequence[Queue]] | None = None,
            /,
        ) -> Assignment:
            if is_broken():
                raise ZeroDivisionError("broken on purpose")
            if getattr(allocator, "wants_previous", False):
                return allocator(members, queues, previous)  # type: ignore[call-arg]
            return allocator(members, queues)

    return Breakable()


class Remembered:
    """What a log would remember of groups, by the rules of the catalog."""

    def __init__(self) -> None:
        self.classic: dict[str, GroupRecord] = {}
        self.consumer: dict[str, PersistedGroup] = {}

    def save(self, record: GroupRecord | ConsumerGroupChange) -> None:
        if isinstance(record, GroupRecord):
            self.classic[record.group] = record
            self.consumer.pop(record.group, None)
        else:
            self.consumer.setdefault(record.group, PersistedGroup(record.group)).apply(record, 0)
            self.classic.pop(record.group, None)

    def forget(self, group: str) -> None:
        self.classic.pop(group, None)
        self.consumer.pop(group, None)


def subscription_bytes(topics: Sequence[str], owned: Mapping[str, Sequence[int]], version: int = 1) -> bytes:
    """What a classic consumer joins with."""
    body = struct.pack(">hi", version, len(topics))
    body += b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    body += struct.pack(">i", -1)
    if version >= 1:
        body += struct.pack(">i", len(owned))
        for name, indexes in owned.items():
            body += (
                struct.pack(">h", len(name)) + name.encode() + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
            )
    return body


def indexes(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    return f"{found[0]}…({len(found)})" if len(found) > 20 else ",".join(map(str, found))


class Script(GroupScript):
    """Both coordinators."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = FakeTopics()
        self.topics.make("t", 4)
        self.settings = ConsumerSettings(default_assignor="uniform")
        self.remembered = Remembered()
        self.failing = False
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> Coordination:
        made = Coordination(GroupSettings(), self.settings, self.topics, self.new_id)
        allocators: dict[str, AnyAllocator] = {"averagely": averagely, "range": range_, "uniform": uniform}
        made.rebalancing.allocators = {name: breakable(each, lambda: self.failing) for name, each in allocators.items()}
        return made

    def check(self) -> None:
        for group in self.coordinator.rebalancing.groups.values():
            group.check()
        for classic in self.coordinator.classic._groups.values():
            classic.check()
        both = set(self.coordinator.rebalancing.groups) & set(self.coordinator.classic._groups)
        assert not both, "a name is one group"

    # -- places

    def places(self, text: str) -> Places:
        if text in ("", "-"):
            return frozenset()
        found = set()
        for part in text.split("+"):
            name, _, indexes = part.partition(":")
            found |= {(self.topics.numbers.get(name, -1), int(index)) for index in indexes.split(",")}
        return frozenset(found)

    def share(self, places: Iterable[tuple[int, ...]]) -> str:
        found: dict[str, list[int]] = {}
        for number, index, *_ in sorted(places):
            found.setdefault(self.topics.name(number) or f"#{number}", []).append(index)
        return "+".join(f"{name}:{indexes(each)}" for name, each in sorted(found.items())) or "-"

    # -- topics

    def do_topic(self, flags: list[str], options: dict[str, str]) -> list[str]:
        self.topics.make(flags[0], int(flags[1]))
        return []

    def do_drop(self, flags: list[str], options: dict[str, str]) -> list[str]:
        self.topics.drop(flags[0])
        return []

    # -- the new protocol

    def do_beat(self, flags: list[str], options: dict[str, str]) -> list[str]:
        member, epoch = flags[0], int(options.get("epoch", "0"))
        joins = epoch == 0 and "bare" not in flags
        if joins:
            options = {"owns": "-", "timeout": "60000"} | ({} if "regex" in options else {"topics": "t"}) | options
        topics = options.get("topics")
        beat = ConsumerHeartbeat(
            group=options.get("group", "g"),
            member_id="" if member == "-" else member,
            epoch=epoch,
            instance_id=options.get("instance"),
            rack=options.get("rack"),
            rebalance_timeout_ms=int(options.get("timeout", "-1")),
            topics=None if topics is None else tuple(each for each in topics.split(",") if each != "-"),
            regex=options.get("regex"),
            assignor=options.get("assignor"),
            owned=self.places(options["owns"]) if "owns" in options else None,
            client_id=options.get("client", "c"),
            client_host="/h",
        )
        return self.show(self.coordinator.consumer_heartbeat(beat, member, self.now))

    # -- the classic protocol

    def do_join(self, flags: list[str], options: dict[str, str]) -> list[str]:
        protocols: Protocols = tuple(self.protocol(item) for item in options.get("protocols", "range:t").split(","))
        return self.join(flags[0], options, protocols, int(options.get("v", "3")))

    def protocol(self, item: str) -> tuple[str, bytes]:
        """`range:t/u!t:0;1` is a subscription of the protocol range to t and u, owning t-0 and t-1; `range:?` is
        none."""
        name, _, rest = item.partition(":")
        topics, _, owned = rest.partition("!")
        if topics == "?":
            return name, b"\x00"
        owns = {
            each.partition(":")[0]: [int(i) for i in each.partition(":")[2].split(";")]
            for each in owned.split("+")
            if each
        }
        return name, subscription_bytes(topics.split("/"), owns)

    def do_sync(self, flags: list[str], options: dict[str, str]) -> list[str]:
        shares = [item.split("=", 1) for item in flags[1:]]
        assert not shares
        assignments = {
            each.partition("@")[0]: self.assignment(each.partition("@")[2])
            for each in options.get("assign", "").split("|")
            if each
        }
        return self.sync(flags[0], options, assignments)

    def assignment(self, text: str) -> bytes:
        """`t:0,1+u:0`; `t:0!more` has user data."""
        text, _, user_data = text.partition("!")
        body = struct.pack(">hi", 0, 0 if text == "-" else text.count("+") + 1)
        for part in text.split("+") if text != "-" else ():
            name, _, indexes = part.partition(":")
            numbers = [int(index) for index in indexes.split(",")]
            body += (
                struct.pack(">h", len(name)) + name.encode() + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
            )
        return body + (struct.pack(">i", len(user_data)) + user_data.encode() if user_data else struct.pack(">i", -1))

    def do_alive(self, flags: list[str], options: dict[str, str]) -> list[str]:
        found, effects = self.coordinator.heartbeat(
            options.get("group", "g"), int(options["gen"]), options["member"], options.get("instance"), self.now
        )
        return [fault(found), *self.show(effects)]

    # -- commits

    def do_commit(self, flags: list[str], options: dict[str, str]) -> list[str]:
        found = self.coordinator.check_commit(
            options.get("group", "g"), int(options.get("epoch", "-1")), options.get("member", ""),
            options.get("instance"), self.now, has_offsets=True, transactional="transactional" in flags,
            knows_epochs="old" not in flags,
        )  # fmt: skip
        return [fault(found)]

    def do_stale(self, flags: list[str], options: dict[str, str]) -> list[str]:
        places = self.places(options["places"])
        found = self.coordinator.stale("g", int(options["epoch"]), options["member"], sorted(places))
        return [f"{self.share([place])} {fault(why)}" for place, why in found.items()]

    def do_fetch(self, flags: list[str], options: dict[str, str]) -> list[str]:
        return [fault(self.coordinator.check_fetch("g", options.get("member"), int(options.get("epoch", "-1"))))]

    def do_restart(self, flags: list[str], options: dict[str, str]) -> list[str]:
        self.coordinator = self.new_coordinator()
        wholes = [group.whole() for group in self.remembered.consumer.values()]
        self.coordinator.restore(list(self.remembered.classic.values()), wholes, self.now)
        return []

    def do_settings(self, flags: list[str], options: dict[str, str]) -> list[str]:
        values: dict[str, object] = {key: int(value) for key, value in options.items() if value.isdecimal()}
        values |= {key: value for key, value in options.items() if not value.isdecimal()}
        values |= {key.removeprefix("no-"): False for key in flags}
        self.settings = ConsumerSettings(**({"default_assignor": "uniform"} | values))  # type: ignore[arg-type]
        self.coordinator = self.new_coordinator()
        return []

    def do_fail(self, flags: list[str], options: dict[str, str]) -> list[str]:
        self.failing = True
        return []

    def do_mend(self, flags: list[str], options: dict[str, str]) -> list[str]:
        self.failing = False
        return []

    # -- operators

    def do_describe(self, flags: list[str], options: dict[str, str]) -> list[str]:
        name = options.get("group", "g")
        group = self.coordinator.describe_consumer(name)
        if group is None:
            classic = self.coordinator.describe(name)
            if classic is None:
                return ["no such group"]
            return [f"classic {classic.state} generation={classic.generation} protocol={classic.protocol or '-'}"] + [
                f"  {m.member_id} share={self.show_bytes(m.assignment)}" for m in classic.members
            ]
        lines = [f"{group.state} epoch={group.epoch} assignment={group.assignment_epoch} by {group.assignor}"]
        for each in group.members:
            m = each.member
            waits = f" gives up {self.share(m.revoking)}" if m.revoking else ""
            static = f" instance={m.instance_id}" if m.instance_id else ""
            kind = "" if m.classic is None else " classic"
            lines.append(
                f"  {m.member_id}{kind}{static} epoch={m.epoch} {m.state} has {self.share(m.assigned)}{waits}"
                f" target {self.share(each.target)}"
            )
        return lines + [f"  yellow: {warning}" for warning in self.coordinator.warnings()]

    def do_list(self, flags: list[str], options: dict[str, str]) -> list[str]:
        states, types = ([each for each in options.get(key, "").split(",") if each] for key in ("states", "types"))
        found = self.coordinator.list(states, types, ["offsets-only"])
        return [f"{each.group} {each.protocol_type or '-'} {each.state} {each.type}" for each in found]

    def do_delete(self, flags: list[str], options: dict[str, str]) -> list[str]:
        name = options.get("group", "g")
        found = self.coordinator.delete(name, "offsets" in flags)
        if found is None:
            self.remembered.forget(name)
        return [fault(found)]

    def do_subscribed(self, flags: list[str], options: dict[str, str]) -> list[str]:
        found = self.coordinator.subscribed_topics("g")
        active = "active" if self.coordinator.is_active("g") else "not active"
        return [" ".join(sorted(found or ())) or "none", active]

    # -- output

    def show(self, effects: list[Effect]) -> list[str]:
        lines = []
        for effect in effects:
            if isinstance(effect, Persist):
                self.remembered.save(effect.record)
                lines.append(f"{self.now} persist {self.record(effect.record)}")
            else:
                lines.append(f"{self.now} {effect.token}: {self.result(effect.result)}")
        return lines

    def record(self, record: GroupRecord | ConsumerGroupChange) -> str:
        if isinstance(record, GroupRecord):
            return (
                f"classic {record.group} generation={record.generation}"
                + (" settled " if record.settled else " ")
                + (
                    " ".join(
                        f"{m.member_id}:{self.show_bytes(m.assignment) if m.assignment else '-'}"
                        for m in record.members
                    )
                    or "empty"
                )
            )
        parts = [f"{record.group} epoch={record.epoch} assignment={record.assignment_epoch}"]
        if record.replaces:
            parts.append("whole")
        if record.topics is not None:
            parts.append("topics=" + (",".join(f"{self.topics.name(n)}:{c}" for n, c in record.topics) or "-"))
        parts += sorted(f"{m.member_id}@{m.epoch}" for m in (*record.members, *record.steps))
        parts += [f"{member_id}→{self.share(places)}" for member_id, places in record.targets]
        parts += [f"gone {member_id}" for member_id in record.gone]
        return " ".join(parts)

    def result(self, result: ConsumerHeartbeatResult | JoinResult | SyncResult) -> str:
        if isinstance(result, ConsumerHeartbeatResult):
            if result.fault is not None:
                return f"{result.fault.name}: {result.message}"
            share = "" if result.assigned is None else f" has {self.share(result.assigned)}"
            return f"member={result.member_id} epoch={result.epoch}{share}"
        if isinstance(result, SyncResult):
            return fault(result.fault) + (
                f" share={self.show_bytes(result.assignment)}" if result.fault is None else ""
            )
        if result.fault is not None:
            return f"{result.fault.name} member={result.member_id or '-'}"
        leads = " leads " + ",".join(m.member_id for m in result.members) if result.members else ""
        return f"ok generation={result.generation} protocol={result.protocol} member={result.member_id}{leads}"

    def show_bytes(self, assignment: bytes) -> str:
        found = parse_assignment(assignment)
        if found is None:
            return "unreadable"
        return "+".join(f"{name}:{indexes(each)}" for name, each in found.items()) or "-"
