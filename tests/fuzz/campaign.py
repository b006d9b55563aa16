"""Random cases, one after the other, each with a seed of its own: `SEED:NUMBER` makes the same bytes again.

A case sends one request, valid or spoilt, on a connection of its own, and ApiVersions behind it. Either the connection
is closed, or the second request is answered too: anything else is a hang. A valid request must be answered with what
its definition describes.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.protocol import (
    CreateTopicsRequest,
    JoinGroupRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    SyncGroupRequest,
)
from halfmoon.adapters.kafka.routes import PRODUCE
from tests.fuzz.canary import Canary
from tests.fuzz.grammar import World, join, valid_request
from tests.fuzz.mutations import MUTATIONS, lying_batch
from tests.fuzz.peer import ClosedError, Peer, framed
from tests.fuzz.process import BrokerProcess, MemoryWatch
from tests.kafka_messages import read_answer

JOIN_GROUP, SYNC_GROUP, API_VERSIONS_KEY = 11, 14, 18
WAITS_FOR_OTHERS = (JOIN_GROUP, SYNC_GROUP)
SHARE_OF_VALID = 0.35
BEHIND = -7
"""Correlation id of the request behind each case."""
API_VERSIONS = struct.pack(">hhih", 18, 0, BEHIND, -1)
TIDY_EVERY = 400
"""Cases after which what they have made is deleted."""
CREATE_EVERY = 20
"""Cases after which the topics that they name are made again, because some cases delete them."""

MEMORY_BYTES = 256 << 20
"""How much more than at its start the broker may have. Its settings are in `SETTINGS`."""

SETTINGS: dict[str, dict[str, Any]] = {
    "log": {"segment_bytes": "16MiB", "flush": "interval", "retention": "10s"},
    "topics": {"partitions": 2},
    "hold": {"max_suspend": "200ms"},
    "groups": {"initial_rebalance_delay": "0ms"},
    "limits": {
        "max_request_bytes": "32MiB", "inflight_bytes": "64MiB", "max_partitions_per_topic": 20, "send_timeout": "2s",
    },
}  # fmt: skip

STRICT = SETTINGS | {"log": {**SETTINGS["log"], "flush": "sync", "validate": "records", "segment_bytes": "1MiB"}}
"""Every record of a produced batch is looked at, answers wait for the disk, and segments come and go."""


def versions() -> list[tuple[int, int]]:
    """Every (API key, version) that is offered, but for those of our own, which have no schema."""
    return [
        (api.key, version)
        for api in registered().values()
        if not api.own
        for version in range(api.min_version, api.max_version + 1)
    ]


class Campaign:
    """Cases against one broker."""

    def __init__(
        self,
        broker: BrokerProcess,
        canary: Canary,
        memory: MemoryWatch,
        seed: int,
        *,
        connect: Callable[[], Peer] | None = None,
        keeper: Callable[[], Peer] | None = None,
    ) -> None:
        """`connect`: how a case connects. `keeper`: how those do who make what cases name, and delete it."""
        self._connect = connect or (lambda: Peer(broker.address))
        self._keeper = keeper or self._connect
        self._broker = broker
        self._canary = canary
        self._memory = memory
        self._seed = seed
        self._world = World()
        self._versions = versions()
        self.outcomes: Counter[str] = Counter()

    def case(self, number: int) -> None:
        """Run the case of that number. Raises AssertionError, with what makes it again."""
        chance = Random(f"{self._seed}:{number}")
        self._broker.forget_peers()  # the kernel hands out the same ports again
        key, version = chance.choice(self._versions)
        tokens = valid_request(chance, self._world, key, version, number)
        valid = chance.random() < SHARE_OF_VALID
        body = join(tokens) if valid else chance.choice(MUTATIONS)(chance, tokens)
        try:
            outcome = self._run(key, version, number, body, valid)
            self.outcomes[outcome] += 1
            self.check()
        except AssertionError as error:
            raise AssertionError(
                f"case {self._seed}:{number} API {key} version {version} valid={valid}\n{body.hex()}\n{error}"
            ) from error
        if number % TIDY_EVERY == TIDY_EVERY - 1:
            self.tidy()
        if number % CREATE_EVERY == 0:
            self.create(number)

    def check(self) -> None:
        """What must hold after every case."""
        self._broker.check()
        self._canary.check()
        grown = self._memory.grown_bytes
        assert grown < MEMORY_BYTES, f"{grown >> 20} MiB more memory than at the start"

    def _run(self, key: int, version: int, number: int, body: bytes, valid: bool) -> str:
        with self._connect() as peer:
            peer.send(framed(body) + framed(API_VERSIONS))
            frames = []
            try:
                while True:
                    # Members of a group wait for others, who never come.
                    frame = peer.frame(0.02 if key in WAITS_FOR_OTHERS else 5.0)
                    if struct.unpack_from(">i", frame)[0] == BEHIND:
                        break
                    frames.append(frame)
            except ClosedError:
                # A refused Produce with acks=0 has no other answer.
                assert not valid or key == PRODUCE, "a valid request closed its connection"
                return "closed"
            except TimeoutError:
                assert key in WAITS_FOR_OTHERS, "no answer, and not closed"
                return "waiting"
            assert len(frames) <= 1, "more answers than requests"
            if not frames:
                assert key == PRODUCE, "no answer"
                return "no answer"
            if valid or struct.unpack_from(">i", frames[0])[0] == number:
                self._learn(key, version, frames[0], valid)
            return "answered"

    def _learn(self, key: int, version: int, frame: bytes, valid: bool) -> None:
        """Decode an answer, and keep the names in it for later cases."""
        try:
            response = read_answer(key, version, frame)
        except Exception as error:
            # ApiVersions alone answers some requests in another version (0) than they were asked in.
            if valid and key != API_VERSIONS_KEY:
                raise AssertionError(f"an answer that cannot be read: {error!r} {frame.hex()}") from error
            return
        if key == JOIN_GROUP and response.member_id:
            self._world.members = [response.member_id, *self._world.members[:3]]

    def create(self, number: int) -> None:
        """Make the topics that cases name, and learn their ids; join a new group as its only member."""
        creatable = CreateTopicsRequest.CreatableTopic
        with self._keeper() as peer:
            topics = [
                creatable(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
                for name in self._world.topics
            ]
            peer.ask(19, 5, topics=topics, timeout_ms=1000, validate_only=False)
            wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in self._world.topics]
            known = peer.ask(3, 10, topics=wanted, allow_auto_topic_creation=False)
            group = f"fuzz-group-{number}"
            joined = self._join(peer, group)
        world = self._world
        world.topic_ids = [topic.topic_id for topic in known.topics]
        world.groups = [group, *world.groups[:1]]
        world.members = [joined.member_id, *world.members[:3]]
        world.generation = joined.generation_id

    def _join(self, peer: Peer, group: str) -> Any:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        joined = peer.ask(
            11, 3, group_id=group, session_timeout_ms=1000, rebalance_timeout_ms=1000, member_id="",
            protocol_type="consumer", protocols=[protocol],
        )  # fmt: skip
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
        synced = peer.ask(
            14, 2, group_id=group, generation_id=joined.generation_id, member_id=joined.member_id,
            assignments=[assignment],
        )  # fmt: skip
        assert (joined.error_code, synced.error_code) == (0, 0)
        return joined

    def tidy(self) -> None:
        """Delete all topics but the canary's, and wait for the canary to go on."""
        with self._keeper() as peer:
            listed = peer.ask(3, 7, topics=None, allow_auto_topic_creation=False)
            names = [topic.name for topic in listed.topics if topic.name != "canary"]
            peer.ask(20, 3, topic_names=names, timeout_ms=1000)
            groups = [group.group_id for group in peer.ask(16, 2).groups]
            peer.ask(42, 1, groups_names=groups)
        self._canary.wait_for_rounds(2)


def lying_batches(campaign: Campaign, peer: Peer, chance: Random, batches: list[bytes]) -> None:
    """Produce batches that lie, and ask for times, so that the broker looks into those it took."""
    topic = ProduceRequest.TopicProduceData
    for batch in batches:
        data = topic.PartitionProduceData(index=0, records=lying_batch(chance, batch))
        with contextlib.suppress(ClosedError):
            peer.ask(
                0, 7, transactional_id=None, acks=1, timeout_ms=100,
                topic_data=[topic(name="fuzz-lies", partition_data=[data])],
            )  # fmt: skip
        wanted = ListOffsetsRequest.ListOffsetsTopic
        parts = [wanted.ListOffsetsPartition(partition_index=0, timestamp=chance.choice((-3, 0, 1_700_000_000_000)))]
        peer.ask(2, 7, replica_id=-1, isolation_level=0, topics=[wanted(name="fuzz-lies", partitions=parts)])
        campaign.check()
