"""What the broker keeps beside records: configurations, quotas, rules, committed offsets. What a client was told of it
stays so until somebody changes it: by the answer to a change, also a repeated one of which nothing was left to be done,
and by looking.

Each thing has one owner, so it is known what it may be: what was last told, or what was asked for since.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.kafka_messages import struct_of
from tests.torture.cast import Actor
from tests.torture.model import Violation
from tests.torture.net import Client, LostError

if TYPE_CHECKING:
    from tests.torture.world import World

COMMIT, OFFSET_FETCH, DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 8, 9, 29, 30, 31
DESCRIBE_CONFIGS, ALTER_CONFIGS, OFFSET_DELETE, DESCRIBE_QUOTAS, ALTER_QUOTAS = 32, 44, 47, 48, 49
TOPIC_TYPE, SET, UNSET, TOPIC_CONFIG = 2, 0, 1, 1
TOPIC = "kept"
AGAIN = {7, 14, 15, 16, 56}
NO_GROUP = 69

Value = int | None
"""None: it is not set."""


class Thing:
    """`told` and `tried` are together what it may be."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.told: Value = None
        self.tried: list[Value] = []

    async def change(self, value: Value) -> int:
        """Ask for it; the error code, 0 where it is so now. Raises LostError."""
        raise NotImplementedError

    async def look(self) -> Value:
        """Raises LostError."""
        raise NotImplementedError


class Config(Thing):
    async def change(self, value: Value) -> int:
        resource = struct_of(ALTER_CONFIGS, "AlterConfigsResource")
        config = resource.AlterableConfig(
            name="segment.ms", config_operation=UNSET if value is None else SET,
            value=None if value is None else str(value),
        )  # fmt: skip
        asked = resource(resource_type=TOPIC_TYPE, resource_name=TOPIC, configs=[config])
        answer = await self.client.ask(ALTER_CONFIGS, 1, resources=[asked], validate_only=False)
        return int(answer.responses[0].error_code)

    async def look(self) -> Value:
        asked = struct_of(DESCRIBE_CONFIGS, "DescribeConfigsResource")(
            resource_type=TOPIC_TYPE, resource_name=TOPIC, configuration_keys=["segment.ms"]
        )
        answer = await self.client.ask(DESCRIBE_CONFIGS, 1, resources=[asked], include_synonyms=False)
        (config,) = answer.results[0].configs
        return int(config.value) if config.config_source == TOPIC_CONFIG else None


class Quota(Thing):
    KEY = "request_percentage"
    """One that slows nobody down here: the client does not exist."""

    async def change(self, value: Value) -> int:
        entry = struct_of(ALTER_QUOTAS, "EntryData")
        entity = entry.EntityData(entity_type="client-id", entity_name="nobody")
        operation = entry.OpData(key=self.KEY, value=float(value or 0), remove=value is None)
        answer = await self.client.ask(
            ALTER_QUOTAS, 0, entries=[entry(entity=[entity], ops=[operation])], validate_only=False
        )
        return int(answer.entries[0].error_code)

    async def look(self) -> Value:
        answer = await self.client.ask(DESCRIBE_QUOTAS, 0, components=[], strict=False)
        found = [value.value for entry in answer.entries for value in entry.values if value.key == self.KEY]
        return int(found[0]) if found else None


class Rule(Thing):
    """An ACL: there, or not."""

    async def change(self, value: Value) -> int:
        if value is not None:
            rule = struct_of(CREATE_ACLS, "AclCreation")(
                resource_type=TOPIC_TYPE, resource_name=TOPIC, principal="User:a", host="*", operation=3,
                permission_type=3,
            )  # fmt: skip
            return int((await self.client.ask(CREATE_ACLS, 1, creations=[rule])).results[0].error_code)
        wanted = struct_of(DELETE_ACLS, "DeleteAclsFilter")(
            resource_type_filter=TOPIC_TYPE, resource_name_filter=TOPIC, pattern_type_filter=3,
            principal_filter="User:a", host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        return int((await self.client.ask(DELETE_ACLS, 1, filters=[wanted])).filter_results[0].error_code)

    async def look(self) -> Value:
        answer = await self.client.ask(
            DESCRIBE_ACLS, 1, resource_type_filter=TOPIC_TYPE, resource_name_filter=TOPIC, pattern_type_filter=3,
            principal_filter=None, host_filter=None, operation=1, permission_type=1,
        )  # fmt: skip
        return 1 if answer.resources else None


class Offset(Thing):
    """Of a group without members."""

    async def change(self, value: Value) -> int:
        kind, key = ("OffsetDelete", OFFSET_DELETE) if value is None else ("OffsetCommit", COMMIT)
        topic = struct_of(key, f"{kind}RequestTopic")
        part = getattr(topic, f"{kind}RequestPartition")(partition_index=0)
        if value is None:
            asked = [topic(name=TOPIC, partitions=[part])]
            answer = await self.client.ask(OFFSET_DELETE, 0, group_id="keepers", topics=asked)
            if answer.error_code:
                return 0 if answer.error_code == NO_GROUP else int(answer.error_code)
        else:
            part.committed_offset = value
            asked = [topic(name=TOPIC, partitions=[part])]
            answer = await self.client.ask(
                COMMIT, 7, group_id="keepers", generation_id_or_member_epoch=-1, member_id="", topics=asked
            )
        return int(answer.topics[0].partitions[0].error_code)

    async def look(self) -> Value:
        answer = await self.client.ask(OFFSET_FETCH, 5, group_id="keepers", topics=None)
        return answer.topics[0].partitions[0].committed_offset if answer.topics else None


class Kept(Actor):
    name = "kept"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._things = [kind(world.client(kind.__name__)) for kind in (Config, Quota, Rule, Offset)]

    async def prepare(self) -> None:
        await self.world.create(self._things[0].client, TOPIC, 1)

    async def play(self) -> None:
        await asyncio.gather(*(self._alter(thing) for thing in self._things))

    async def _alter(self, thing: Thing) -> None:
        world, dice = self.world, self.dice
        number = 0
        while not world.ending:
            number += 1
            value = None if dice.random() < 0.3 else 1 if isinstance(thing, Rule) else number
            await self._ask(thing, value)
            await world.rest(2)
        await self._look(thing)

    async def _ask(self, thing: Thing, value: Value) -> None:
        """Until the broker says that it is so."""
        thing.tried.append(value)
        while True:
            try:
                code = await thing.change(value)
            except LostError:
                code = 7
            if code == 0:
                thing.told, thing.tried = value, []
                self.model.counts["settings"] += 1
                return
            if code not in AGAIN:
                raise Violation(f"{type(thing).__name__} {value} got {code}")
            if self.dice.random() < 0.3:
                await self._look(thing)
            await self.world.rest(0.5)

    async def _look(self, thing: Thing) -> None:
        """What is seen is told, and holds from now on."""
        while True:
            try:
                found = await thing.look()
                break
            except LostError:
                await self.world.rest(0.5)
        if found != thing.told and found not in thing.tried:
            raise Violation(
                f"{type(thing).__name__} is {found}; it was said to be {thing.told}, then {thing.tried} was asked for"
            )
        thing.told = found

    async def check(self, last: bool) -> None:
        for thing in self._things:
            await self._look(thing)


__all__ = ["Kept"]
