"""A group of the new protocol (KIP-848): members come, go and are lost; each record is handled at least once, progress
that was acknowledged never goes back, and what is handed back comes again as often as the group allows."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from tests.kafka_messages import struct_of
from tests.torture.cast import Actor
from tests.torture.model import Place, Sent, Violation, short
from tests.torture.net import Client, LostError
from tests.torture.reader import NOT_NOW, Got, fetch, read_all

if TYPE_CHECKING:
    from tests.torture.producer import Producer
    from tests.torture.world import World

COMMIT, OFFSET_FETCH, BEAT, METADATA = 8, 9, 68, 3
GROUP, TOPIC, PARTITIONS = "crew", "tasks", 3
RETRY, DEAD = f"retry.{GROUP}", f"dlq.{GROUP}"
LIMIT = 3
"""As plugins.retry.max_reconsume_times (process.py)."""
REJOIN = {25, 110, 111, 113}
"""UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, STALE_MEMBER_EPOCH."""
LATER = {7, 14, 15, 16, 56, 88}


class Progress:
    """What is known of one partition's committed offset."""

    def __init__(self) -> None:
        self.acked = 0
        self.tried: set[int] = set()
        """Since then, without an answer."""


class Groups(Actor):
    name = "groups"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("groups-admin")
        self.progress: dict[Place, Progress] = defaultdict(Progress)
        self.handled: Counter[bytes] = Counter()
        self.handed_back: dict[bytes, set[str]] = defaultdict(set)
        """Value → the places that were handed back of it."""
        self.nacks: dict[str, Counter[str]] = defaultdict(Counter)
        """Place → how often each member has handed it back."""
        self.ids: dict[Any, str] = {}
        self.fed = asyncio.Event()
        self.waits_for = 0
        """Records that were handed back and not acknowledged yet."""

    async def prepare(self) -> None:
        for topic, partitions in ((TOPIC, PARTITIONS), (RETRY, 1), (DEAD, 1)):
            await self.world.create(self._client, topic, partitions)
        topic = struct_of(METADATA, "MetadataRequestTopic")
        names = [topic(name=name) for name in (TOPIC, RETRY)]
        while len(self.ids) < 2:
            try:
                answer = await self._client.ask(METADATA, 12, topics=names, allow_auto_topic_creation=False)
            except LostError:
                continue
            self.ids = {each.topic_id: each.name for each in answer.topics if not each.error_code}

    async def play(self) -> None:
        members = [Member(self, number).live() for number in range(self.dice.randint(1, 3))]
        await asyncio.gather(self._feed(), *members)

    async def _feed(self) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer("tasks")
        number = 0
        while not world.ending:
            place = TOPIC, dice.randrange(PARTITIONS)
            rows = []
            for _ in range(dice.randint(1, 5)):
                number += 1
                value = b"t-%d " % number + b"." * dice.choice([0, 500])
                self.model.sent[value] = Sent(place, "tasks", number)
                rows.append((None, value, ()))
            producer.send(*place, rows)
            await world.rest(1)
        await producer.flush()
        self.fed.set()

    def all_is_read(self) -> bool:
        return self.fed.is_set() and all(
            self.progress[TOPIC, index].acked >= self.model.ends[TOPIC, index] for index in range(PARTITIONS)
        )

    async def check(self, last: bool) -> None:
        world = self.world
        if not last:
            await asyncio.sleep(10)
        until_s = world.loop.now_s + 200

        def deadline() -> None:
            if world.loop.now_s > until_s:
                raise Violation("groups: not read in time")

        for index in range(PARTITIONS):
            _, records = await read_all(self._client, (TOPIC, index), committed=True, deadline=deadline)
            for got in records:
                assert got.value is not None
                if not self.handled[got.value]:
                    raise Violation(f"{TOPIC}-{index} @{got.offset}: {short(got.value)} was passed over")
        began_s = world.loop.now_s
        until_s += world.largest_leap_s
        while True:
            _, again = await read_all(self._client, (RETRY, 0), committed=True, deadline=deadline)
            _, dead = await read_all(self._client, (DEAD, 0), committed=True, deadline=deadline)
            try:
                self._check_retries(again, dead)
                break
            except Violation:
                if world.loop.now_s > began_s + 10 + world.largest_leap_s:  # what waits may wait for a clock set back
                    raise
                await asyncio.sleep(60)
        self.model.counts["handed back"] = sum(map(len, self.handed_back.values()))

    def _check_retries(self, again: list[Got], dead: list[Got]) -> None:
        times: dict[bytes, list[int]] = defaultdict(list)
        level: Counter[str] = Counter()
        """Place → which time it came again there."""
        for got in again:
            assert got.value is not None
            time = int(got.headers["RECONSUME_TIME"] or b"0")
            times[got.value].append(time)
            level[f"{RETRY}/0/{got.offset}"] = time
        letters = Counter(got.value for got in dead)
        for value, places in self.handed_back.items():
            # By one member only; another may have handed it back again when the group had gone on, and from there on it
            # goes both ways.
            once = all(len(self.nacks[place]) == 1 for place in places)
            found = Counter(times[value])
            found[LIMIT + 1] += letters[value]
            expected = Counter(level[place] + 1 for place in places)
            if (found != expected) if once else not found >= expected:
                raise Violation(
                    f"{RETRY}: {short(value)} was handed back at {sorted(places)}, it came as {sorted(times[value])}, "
                    f"{letters[value]} dead letters"
                )
        for value in [*times, *letters]:
            if value not in self.handed_back:
                raise Violation(f"{RETRY}: {short(value)} was not handed back")


class Member:
    def __init__(self, group: Groups, number: int) -> None:
        self._group = group
        self._world = group.world
        self._dice = group.dice
        self._name = f"member-{number}"
        self._client: Client = group.world.client(self._name)
        self._beats: Client = group.world.client(self._name + "-beats")
        self._id = ""
        self._epoch = 0
        self._anew = False
        """The answer to a heartbeat was lost."""
        self._owned: dict[Place, int] = {}
        """Partition → position."""
        self._producer: Producer

    async def live(self) -> None:
        self._producer = await self._world.producer(self._name)
        count = 0
        while not self._group.all_is_read() or self._group.waits_for:
            count += 1
            self._id, self._epoch, self._owned = f"{self._name}-{count}", 0, {}
            await self._session()
            await self._world.rest(3)

    async def _session(self) -> None:
        """From joining to leaving, or being thrown out, or being lost without a word."""
        world, dice, group = self._world, self._dice, self._group
        until_s = world.loop.now_s + dice.uniform(2, 40)
        next_beat_s = 0.0
        while True:
            if world.loop.now_s >= next_beat_s or not self._epoch:
                if not await self._beat():
                    return
                next_beat_s = world.loop.now_s + dice.uniform(0.1, 1.5)
            for place in list(self._owned):
                if not await self._consume(place):
                    return
            if group.all_is_read() and not group.waits_for:
                break
            if not world.ending and world.loop.now_s > until_s:
                if dice.random() < 0.5:
                    return  # without a word
                break
            await world.rest(0.5)
        try:
            await self._beats.ask(BEAT, 1, group_id=GROUP, member_id=self._id, member_epoch=-1)
        except LostError:
            pass

    async def _beat(self) -> bool:
        """False when it is no member any more."""
        owned: dict[str, list[int]] = defaultdict(list)
        for topic, index in self._owned:
            owned[topic].append(index)
        piece = struct_of(BEAT, "TopicPartitions")
        said = [piece(topic_id=key, partitions=owned[name]) for key, name in self._group.ids.items() if owned[name]]
        fields: dict[str, Any] = {"topic_partitions": said}
        if not self._epoch or self._anew:
            # All of it. After an error or a lost answer too, as Kafka's clients do: only then the whole assignment is
            # told again (KIP-848).
            fields |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": [TOPIC, RETRY]}
        try:
            answer = await self._beats.ask(
                BEAT, 1, group_id=GROUP, member_id=self._id, member_epoch=self._epoch, **fields
            )
        except LostError:
            self._anew = True
            return True
        self._anew = False
        if answer.error_code in REJOIN:
            return False
        if answer.error_code in LATER:
            self._anew = True
            return True
        if answer.error_code:
            raise Violation(f"groups: a heartbeat got {answer.error_code} {answer.error_message}")
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            wanted = {
                (self._group.ids[each.topic_id], index)
                for each in answer.assignment.topic_partitions for index in each.partitions
            }  # fmt: skip
            for place in set(self._owned) - wanted:
                del self._owned[place]
            for place in sorted(wanted - set(self._owned)):
                at = await self._committed(place)
                if at is None:
                    return False
                self._owned[place] = at
        return True

    async def _committed(self, place: Place) -> int | None:
        """None where it is no member any more. Raises Violation where it is not what was committed."""
        progress = self._group.progress[place]
        topic = struct_of(OFFSET_FETCH, "OffsetFetchRequestGroup.OffsetFetchRequestTopics")(
            name=place[0], partition_indexes=[place[1]]
        )
        group = struct_of(OFFSET_FETCH, "OffsetFetchRequestGroup")(
            group_id=GROUP, member_id=self._id, member_epoch=self._epoch, topics=[topic]
        )
        while True:
            acked = progress.acked
            try:
                answer = await self._client.ask(OFFSET_FETCH, 9, groups=[group], require_stable=True)
            except LostError:
                continue
            found = answer.groups[0]
            code = found.error_code or found.topics[0].partitions[0].error_code
            if code in REJOIN:
                return None
            if code in LATER:
                await self._world.rest(0.5)
                continue
            if code:
                raise Violation(f"groups: OffsetFetch got {code}")
            offset = max(0, int(found.topics[0].partitions[0].committed_offset))
            if offset < acked:
                raise Violation(f"groups: {place} is committed at {offset}, {acked} was acknowledged")
            if offset not in (acked, progress.acked) and offset not in progress.tried:
                raise Violation(f"groups: {place} is committed at {offset}, nobody has said so")
            return offset

    async def _consume(self, place: Place) -> bool:
        """Handle a few records and commit; False when it is no member any more."""
        world, group = self._world, self._group
        try:
            page = await fetch(self._client, place, self._owned[place], committed=True, max_bytes=3_000)
        except LostError:
            return True
        if page.error:
            if page.error not in NOT_NOW:
                raise Violation(f"groups: Fetch of {place} @{self._owned[place]} got {page.error}")
            return True
        if not page.records:
            self._owned[place] = max(self._owned[place], page.next_offset)
            if self._owned[place] > group.progress[place].acked:  # an answer was lost, or markers were passed
                return await self._commit(place, self._owned[place])
            return True
        waits = []
        for got in page.records:
            assert got.value is not None
            if place[0] == TOPIC:
                group.model.read(place, got.offset, got.value, world.loop.now_s)
            group.handled[got.value] += 1
            # The same answer for the same record, whoever asks.
            if (len(got.value) + got.offset + place[1]) % 3 == 0 or (place[0] == RETRY and got.offset % 2):
                waits.append(self._hand_back(place, got))
        group.waits_for += len(waits)
        for stored in waits:
            await stored
        group.waits_for -= len(waits)
        self._owned[place] = page.next_offset
        return await self._commit(place, page.next_offset)

    def _hand_back(self, place: Place, got: Got) -> asyncio.Future[int]:
        assert got.value is not None
        named = f"{place[0]}/{place[1]}/{got.offset}"
        group = self._group
        group.handed_back[got.value].add(named)
        group.nacks[named][self._name] += 1
        headers = [(name, value) for name, value in got.headers.items() if value is not None and name != "RETRY_OF"]
        headers = [each for each in headers if not each[0].startswith("halfmoon.")]
        headers += [("RETRY_OF", named.encode()), ("TIMER_DELAY_MS", b"%d" % self._dice.randint(1, 3_000))]
        group.model.sent.setdefault(got.value, Sent(place))
        return self._producer.send(RETRY, 0, [(got.key, got.value, headers)])

    async def _commit(self, place: Place, offset: int) -> bool:
        progress = self._group.progress[place]
        part = struct_of(COMMIT, "OffsetCommitRequestTopic.OffsetCommitRequestPartition")(
            partition_index=place[1], committed_offset=offset, committed_leader_epoch=-1, committed_metadata=None
        )
        topic = struct_of(COMMIT, "OffsetCommitRequestTopic")(name=place[0], partitions=[part])
        acked = progress.acked
        progress.tried.add(offset)
        try:
            answer = await self._client.ask(
                COMMIT, 9, group_id=GROUP, generation_id_or_member_epoch=self._epoch, member_id=self._id,
                group_instance_id=None, topics=[topic],
            )  # fmt: skip
        except LostError:
            return True
        code = answer.topics[0].partitions[0].error_code
        if code in REJOIN:
            return False
        if code in LATER:
            return True
        if code:
            raise Violation(f"groups: OffsetCommit got {code}")
        if offset < acked:
            raise Violation(f"groups: {place}: a commit of {offset} was taken after one of {acked}")
        progress.acked = max(progress.acked, offset)
        return True
