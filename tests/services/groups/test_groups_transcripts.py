"""Runs the transcripts of `transcripts/groups_*.txt`: a command, `----`, and exactly what the coordinator said.

    HALFMOON_REWRITE=1 pytest tests/services/groups/test_groups_transcripts.py   rewrites them; read the diff

Commands (key=value, in any order; group=g unless said):
    join TAG [member=] [instance=] [client=c] [session=10000] [rebalance=60000] [type=consumer] [protocols=range:t] [v=]
    sync TAG member= gen= [assign=MEMBER:SHARE,…] [type=] [protocol=]
    heartbeat / commit [member=] [gen=] [instance=]        commit also takes the flag `offsets`: the group has some
    await TAG member= gen= [instance=]                      a heartbeat that may wait for a rebalance
    leave [member=A,B] [instance=]
    tick MS                                                 fires what is due on the way, each at its own moment
    list [states=] [types=] [offsets=]      describe / delete / offset-delete [offsets]      topics      active
    settings KEY=VALUE…                                     a new coordinator with these
    restart                                                 a new coordinator that is given the records
"""

from __future__ import annotations

import struct
from pathlib import Path

from halfmoon.schema.groups import GroupRecord, Protocols
from halfmoon.services.groups.coordinator import GroupCoordinator
from halfmoon.services.groups.messages import (
    Effect,
    GroupSettings,
    HeartbeatResult,
    JoinResult,
    Persist,
    Reply,
    SyncResult,
)
from tests.services.groups.group_script import GroupScript, fault
from tests.transcript import check, transcripts


def subscription(topics: str) -> bytes:
    """Consumer metadata for `t1+t2`, or with what the assignor added, `t1+t2/added`; `!x` is the bytes x themselves."""
    if topics.startswith("!"):
        return topics[1:].encode()
    names, _, added = topics.partition("/")
    body = b"".join(struct.pack(">h", len(name)) + name.encode() for name in names.split("+"))
    user_data = struct.pack(">i", len(added)) + added.encode()
    return struct.pack(">hi", 1, names.count("+") + 1) + body + user_data


class Script(GroupScript):
    """The classic coordinator alone."""

    client_host = "h"

    def __init__(self) -> None:
        super().__init__()
        self.settings = GroupSettings()
        self.records: dict[str, GroupRecord] = {}
        self.coordinator = self.new_coordinator()
        self.names: dict[bytes, str] = {}

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, self.new_id)

    def check(self) -> None:
        for group in self.coordinator._groups.values():
            group.check()

    # -- members

    def do_join(self, flags: list[str], options: dict[str, str]) -> list[str]:
        version = int(options.get("v", "9"))
        protocols: Protocols = tuple(
            (name, subscription(topics))
            for name, _, topics in (item.partition(":") for item in options.get("protocols", "range:t").split(","))
            if name
        )
        for item in options.get("protocols", "range:t").split(","):
            self.names[subscription(item.partition(":")[2])] = item.partition(":")[2]
        return self.join(flags[0], options, protocols, version)

    def do_sync(self, flags: list[str], options: dict[str, str]) -> list[str]:
        shares = [item.split(":") for item in options.get("assign", "").split(",") if item]
        return self.sync(flags[0], options, {member: share.encode() for member, share in shares})

    def do_heartbeat(self, flags: list[str], options: dict[str, str]) -> list[str]:
        group, gen, member = options.get("group", "g"), int(options.get("gen", "-1")), options.get("member", "")
        return [fault(self.coordinator.heartbeat(group, gen, member, options.get("instance"), self.now))]

    def do_await(self, flags: list[str], options: dict[str, str]) -> list[str]:
        said = self.do_heartbeat([], options)
        effects = None
        if said == ["ok"]:
            effects = self.coordinator.await_rebalance(options.get("group", "g"), options["member"], flags[0], self.now)
        return said if effects is None else self.show(effects)

    def do_commit(self, flags: list[str], options: dict[str, str]) -> list[str]:
        group, gen, member = options.get("group", "g"), int(options.get("gen", "-1")), options.get("member", "")
        checked = self.coordinator.check_commit(
            group, gen, member, options.get("instance"), self.now, has_offsets="offsets" in flags
        )
        return [fault(checked)]

    # -- time and restarts

    def do_restart(self, flags: list[str], options: dict[str, str]) -> list[str]:
        self.coordinator = self.new_coordinator()
        self.coordinator.restore(list(self.records.values()), self.now)
        return []

    def do_settings(self, flags: list[str], options: dict[str, str]) -> list[str]:
        self.settings = GroupSettings(**{key: int(value) for key, value in options.items()})
        self.coordinator = self.new_coordinator()
        return []

    # -- operators

    def do_list(self, flags: list[str], options: dict[str, str]) -> list[str]:
        states, types, offsets = (options.get(key, "").split(",") for key in ("states", "types", "offsets"))
        found = self.coordinator.list(*([word for word in words if word] for words in (states, types, offsets)))
        return [f"{group.group} {group.protocol_type or '-'} {group.state} {group.type}" for group in found]

    def do_describe(self, flags: list[str], options: dict[str, str]) -> list[str]:
        group = self.coordinator.describe(options.get("group", "g"), has_offsets="offsets" in flags)
        if group is None:
            return ["no such group"]
        head = f"{group.state} type={group.protocol_type or '-'} protocol={group.protocol or '-'}"
        return [head] + [
            f"  {m.member_id} instance={m.instance_id or '-'} client={m.client_id}@{m.client_host}"
            f" metadata={self.names.get(m.metadata, '') or '-'} share={m.assignment.decode() or '-'}"
            for m in group.members
        ]

    def do_delete(self, flags: list[str], options: dict[str, str]) -> list[str]:
        name = options.get("group", "g")
        why = self.coordinator.delete(name, "offsets" in flags)
        if why is None:
            self.records.pop(name, None)
        return [fault(why)]

    def do_topics(self, flags: list[str], options: dict[str, str]) -> list[str]:
        topics = self.coordinator.subscribed_topics(options.get("group", "g"))
        return ["unknown" if topics is None else " ".join(sorted(topics)) or "none"]

    def do_active(self, flags: list[str], options: dict[str, str]) -> list[str]:
        return [str(self.coordinator.is_active(options.get("group", "g")))]

    def do_offset_delete(self, flags: list[str], options: dict[str, str]) -> list[str]:
        name = options.get("group", "g")
        return [fault(self.coordinator.check_offset_delete(name, has_offsets="offsets" in flags))]

    # -- output

    def show(self, effects: list[Effect]) -> list[str]:
        lines = []
        for effect in effects:
            if isinstance(effect, Persist):
                self.records[effect.record.group] = effect.record
                lines.append(f"{self.now} persist {record(effect.record)}")
            else:
                lines.append(f"{self.now} {self.reply(effect)}")
        return lines

    def reply(self, reply: Reply) -> str:
        result = reply.result
        if isinstance(result, HeartbeatResult):
            return f"{reply.token}: {fault(result.fault)}"
        if isinstance(result, SyncResult):
            share = result.assignment.decode() or "-"
            return f"{reply.token}: {fault(result.fault)}" + (f" share={share}" if result.fault is None else "")
        if result.fault is not None:
            return f"{reply.token}: {fault(result.fault)} member={result.member_id or '-'}"
        return f"{reply.token}: {self.joined(result)}"

    def joined(self, result: JoinResult) -> str:
        members = " ".join(
            f"{m.member_id}({m.instance_id + ' ' if m.instance_id else ''}{self.names.get(m.metadata, '?')})"
            for m in result.members
        )
        skip = " skip-assignment" if result.skip_assignment else ""
        return (
            f"ok generation={result.generation} protocol={result.protocol} member={result.member_id}"
            f" leader={result.leader}{skip}" + (f" members=[{members}]" if members else "")
        )


def record(record: GroupRecord) -> str:
    members = " ".join(
        (f"{member.instance_id}=" if member.instance_id else "")
        + f"{member.member_id}:{member.assignment.decode() or '-'}"
        for member in record.members
    )
    return f"{record.group} generation={record.generation} settled={record.settled} members=[{members}]"


@transcripts("groups", __file__)
def test_transcript(path: Path) -> None:
    check(path, Script().run)
