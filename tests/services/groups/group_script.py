"""What the scripts of both coordinators have in common: commands in, lines out, at a time that they say."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from halfmoon.errors import Fault
from halfmoon.schema.groups import Protocols
from halfmoon.services.groups.messages import Effect, Join, Sync


def fault(value: Fault | None) -> str:
    return "ok" if value is None else value.name


class GroupScript(ABC):
    """A coordinator at a certain time, driven by lines of text. `check` asserts the groups' invariants after each."""

    coordinator: Any
    client_host = "/h"

    def __init__(self) -> None:
        self.now = 0
        self.ids = itertools.count(1)

    def new_id(self, prefix: str) -> str:
        return f"{prefix}-{next(self.ids)}"

    @abstractmethod
    def check(self) -> None: ...

    @abstractmethod
    def show(self, effects: list[Effect]) -> list[str]: ...

    def run(self, line: str) -> list[str]:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        flags = [word for word in words if "=" not in word]
        output: list[str] = getattr(self, "do_" + command.replace("-", "_"))(flags, options)
        self.check()
        return output or ["(nothing)"]

    def join(self, token: str, options: dict[str, str], protocols: Protocols, version: int) -> list[str]:
        join = Join(
            group=options.get("group", "g"),
            member_id=options.get("member", ""),
            instance_id=options.get("instance"),
            client_id=options.get("client", "c"),
            client_host=self.client_host,
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            protocol_type=options.get("type", "consumer"),
            protocols=protocols,
            require_known_member=version >= 4,
            can_skip_assignment=version >= 9,
        )
        return self.show(self.coordinator.join(join, token, self.now))

    def sync(self, token: str, options: dict[str, str], assignments: Mapping[str, bytes]) -> list[str]:
        sync = Sync(
            group=options.get("group", "g"),
            generation=int(options["gen"]),
            member_id=options["member"],
            instance_id=options.get("instance"),
            protocol_type=options.get("type"),
            protocol=options.get("protocol"),
            assignments=assignments,
        )
        return self.show(self.coordinator.sync(sync, token, self.now))

    def do_leave(self, flags: list[str], options: dict[str, str]) -> list[str]:
        members = [(member, options.get("instance")) for member in options.get("member", "").split(",")]
        results, effects = self.coordinator.leave(options.get("group", "g"), members, self.now)
        return [f"{member or instance}: {fault(why)}" for member, instance, why in results] + self.show(effects)

    def do_tick(self, flags: list[str], options: dict[str, str]) -> list[str]:
        end, output = self.now + int(flags[0]), []
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            output += self.show(self.coordinator.expire(self.now))
            after = self.coordinator.next_deadline()
            assert after is None or after > self.now
            self.check()
        self.now = end
        return output
