"""A share group: what was accepted, and answered, is given out no more; all else is, until it is finished."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.kafka_messages import struct_of
from tests.torture.cast import Actor
from tests.torture.model import Sent, Violation, short
from tests.torture.net import Client, LostError
from tests.torture.reader import read_all

if TYPE_CHECKING:
    from tests.torture.world import World

METADATA, BEAT, FETCH, ACKNOWLEDGE = 3, 76, 78, 79
ACCEPT, RELEASE, REJECT = 1, 2, 3
GROUP, TOPIC, PARTITIONS, LIMIT = "sharers", "work", 2, 4
BEGIN_ANEW = {25, 110, 111, 113, 122, 123, 133}
LATER = {3, 7, 14, 15, 16, 56, 100}
LOCK_S = 5.0
"""As groups.share.record_lock_duration (process.py)."""
Place = tuple[int, int]
"""Partition, offset."""


class Share(Actor):
    name = "share"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("share-admin")
        self.id: Any = None
        self.accepted: set[Place] = set()
        """Answered."""
        self.rejected: set[Place] = set()
        self.perhaps: set[Place] = set()
        """Finished in a request without an answer, or released for the last time."""
        self.deliveries: Counter[Place] = Counter()
        self.holder: dict[Place, tuple[str, float]] = {}
        """Who was given it last, and had asked when."""
        self.values: dict[Place, bytes] = {}
        self.fed = asyncio.Event()
        self.quiet = 0
        """Fetches in a row that brought nothing."""

    async def prepare(self) -> None:
        await self.world.create(self._client, TOPIC, PARTITIONS)
        topic = struct_of(METADATA, "MetadataRequestTopic")(name=TOPIC)
        while self.id is None:
            try:
                answer = await self._client.ask(METADATA, 12, topics=[topic], allow_auto_topic_creation=False)
            except LostError:
                continue
            self.id = answer.topics[0].topic_id

    async def play(self) -> None:
        members = [Member(self, number).live() for number in range(self.dice.randint(1, 3))]
        await asyncio.gather(self._feed(), *members)

    async def _feed(self) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer("work")
        number = 0
        while not world.ending:
            place = TOPIC, dice.randrange(PARTITIONS)
            rows = []
            for _ in range(dice.randint(1, 4)):
                number += 1
                value = b"w-%d " % number + b"." * dice.choice([0, 500])
                self.model.sent[value] = Sent(place, "work", number)
                rows.append((None, value, ()))
            producer.send(*place, rows)
            await world.rest(1.5)
        await producer.flush()
        self.fed.set()

    def is_over(self) -> bool:
        """Nothing was given out for longer than a lock lasts."""
        return self.fed.is_set() and self.quiet > 60

    async def check(self, last: bool) -> None:
        world = self.world
        until_s = world.loop.now_s + 120

        def deadline() -> None:
            if world.loop.now_s > until_s:
                raise Violation("share: not read in time")

        everything: set[Place] = set()
        for index in range(PARTITIONS):
            _, records = await read_all(self._client, (TOPIC, index), committed=False, deadline=deadline)
            everything |= {(index, got.offset) for got in records}
        over = {place for place, count in self.deliveries.items() if count >= LIMIT - 1}
        open_ = everything - self.accepted - self.rejected - self.perhaps - over
        if open_:
            raise Violation(f"share: {sorted(open_)[:5]} were never finished")
        _, letters = (
            await read_all(self._client, (f"dlq.{GROUP}", 0), committed=False, deadline=deadline)
            if (self.rejected)
            else (None, [])
        )
        dead = Counter(
            (int(got.headers["__dlq.errors.partition"] or b""), int(got.headers["__dlq.errors.offset"] or b""))
            for got in letters
        )
        for place in self.rejected:
            if dead[place] != 1:
                raise Violation(f"share: {place} was rejected, and has {dead[place]} dead letters")
        for place, count in dead.items():
            if count > 1 or place in self.accepted:
                raise Violation(f"share: {place} has {count} dead letters, accepted: {place in self.accepted}")
        self.model.counts["accepted"] = len(self.accepted)


class Member:
    def __init__(self, group: Share, number: int) -> None:
        self._group = group
        self._world = group.world
        self._dice = group.dice
        self._name = f"sharer-{number}"
        self._client: Client = group.world.client(self._name)
        self._member = ""
        self._epoch = 0
        self._session = 0

    async def live(self) -> None:
        world, dice = self._world, self._dice
        count = 0
        while not self._group.is_over():
            count += 1
            self._member, self._epoch, self._session = f"{self._name}-{count}", 0, 0
            until_s = world.loop.now_s + dice.uniform(3, 40)
            try:
                while world.loop.now_s < until_s and not self._group.is_over():
                    if not await self._round():
                        break
                    await world.rest(0.6)
                if dice.random() < 0.5:
                    await self._beat(-1)
            except LostError:
                self._session = 0
            await world.rest(1)

    async def _beat(self, epoch: int) -> int:
        answer = await self._client.ask(
            BEAT, 1, group_id=GROUP, member_id=self._member, member_epoch=epoch, rack_id=None,
            subscribed_topic_names=[TOPIC] if not epoch else None,
        )  # fmt: skip
        if answer.error_code == 0:
            self._epoch = answer.member_epoch
        elif answer.error_code not in BEGIN_ANEW | LATER:
            raise Violation(f"share: a heartbeat got {answer.error_code} {answer.error_message}")
        return int(answer.error_code)

    async def _round(self) -> bool:
        """Fetch, and say something of what came; False where it has to begin anew. Raises LostError."""
        group, dice = self._group, self._dice
        code = await self._beat(self._epoch)
        if code:
            return code in LATER
        known = set(group.accepted), set(group.rejected)
        asked_s = self._world.loop.now_s
        given = await self._fetch()
        if given is None:
            return False
        for place in given:
            if place in known[0] or place in known[1]:
                raise Violation(f"share: {place} is finished, and was given out again to {self._member}")
            group.deliveries[place] += 1
            group.holder[place] = self._member, asked_s
            if group.deliveries[place] > LIMIT + self._group.model.counts["starts"]:
                raise Violation(f"share: {place} was given out {group.deliveries[place]} times")
        group.quiet = 0 if given else group.quiet + 1
        await self._world.rest(dice.choice([0, 0.2, 7]))
        for place in given:
            kind = dice.choices([ACCEPT, RELEASE, REJECT, 0], [8, 2, 1, 1])[0]
            if kind and not await self._acknowledge(place, kind):
                return False
        return True

    async def _fetch(self) -> list[Place] | None:
        piece = struct_of(FETCH, "FetchTopic.FetchPartition")
        parts = [piece(partition_index=index, acknowledgement_batches=[]) for index in range(PARTITIONS)]
        topic = struct_of(FETCH, "FetchTopic")(topic_id=self._group.id, partitions=parts)
        answer = await self._client.ask(
            FETCH, 2, group_id=GROUP, member_id=self._member, share_session_epoch=self._session,
            max_wait_ms=self._dice.choice([0, 300]), min_bytes=1, max_bytes=1 << 20, max_records=20, batch_size=20,
            share_acquire_mode=0, is_renew_ack=False, topics=[topic] if not self._session else [],
            forgotten_topics_data=[],
        )  # fmt: skip
        if answer.error_code in BEGIN_ANEW:
            return None
        if answer.error_code:
            if answer.error_code not in LATER:
                raise Violation(f"share: ShareFetch got {answer.error_code} {answer.error_message}")
            return []
        self._session += 1
        return [
            (part.partition_index, offset)
            for found in answer.responses
            for part in found.partitions
            for each in part.acquired_records
            for offset in range(each.first_offset, each.last_offset + 1)
        ]

    async def _acknowledge(self, place: Place, kind: int) -> bool:
        group = self._group
        piece = struct_of(ACKNOWLEDGE, "AcknowledgeTopic.AcknowledgePartition")
        batch = piece.AcknowledgementBatch(first_offset=place[1], last_offset=place[1], acknowledge_types=[kind])
        part = piece(partition_index=place[0], acknowledgement_batches=[batch])
        topic = struct_of(ACKNOWLEDGE, "AcknowledgeTopic")(topic_id=group.id, partitions=[part])
        if kind != RELEASE:
            group.perhaps.add(place)
        answer = await self._client.ask(
            ACKNOWLEDGE, 2, group_id=GROUP, member_id=self._member, share_session_epoch=self._session,
            is_renew_ack=False, topics=[topic],
        )  # fmt: skip
        if answer.error_code in BEGIN_ANEW:
            return False
        if answer.error_code:
            if answer.error_code not in LATER:
                raise Violation(f"share: ShareAcknowledge got {answer.error_code} {answer.error_message}")
            return True
        self._session += 1
        code = answer.responses[0].partitions[0].error_code
        holder, asked_s = group.holder[place]
        # After that it may be somebody else's; what is finished meanwhile may be acknowledged in vain, as in Kafka.
        in_time = holder == self._member and self._world.loop.now_s - asked_s < LOCK_S
        if code == 0 and in_time:
            if kind == ACCEPT:
                group.accepted.add(place)
            elif kind == REJECT:
                group.rejected.add(place)
        elif code and code not in LATER | {121, 122}:  # INVALID_RECORD_STATE: its lock was over
            raise Violation(f"share: acknowledging {place} got {code}")
        return True


__all__ = ["Share", "short"]
