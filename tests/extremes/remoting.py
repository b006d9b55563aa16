"""Extremes of RocketMQ's clients: frames of up to 16 MiB, large JSON, many requests ahead."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from tests.extremes.records import nothing, of_bodies
from tests.extremes.registry import extreme, several
from tests.extremes.world import PATIENCE_S, Steps, World
from tests.fuzz.remoting import (
    CREATE,
    HEARTBEAT,
    LOCK,
    PULL,
    QUERY,
    RESPONSE,
    ROUTE,
    SEND,
    SEND_BATCH,
    SUCCESS,
    TOPICS,
    Command,
    Remote,
    batch_body,
    parsed,
    pulling,
    said,
    sending,
)


def make(peer: Remote, name: str, queues: int = 1) -> None:
    peer.well(CREATE, said(topic=name, readQueueNums=queues, writeQueueNums=queues, perm=6))


def well(peer: Remote, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
    answer = peer.tell(code, fields, body, PATIENCE_S)
    assert answer.code == SUCCESS, answer[:5]
    return answer


def heard(peer: Remote, number: int) -> None:
    while number:
        command = parsed(peer.frame(PATIENCE_S))
        if command.flag & RESPONSE:
            assert command.code == SUCCESS, command[:5]
            number -= 1


@extreme("RocketMQ", "SEND_BATCH of 100,000 tiny messages")
def remote_batch(world: World) -> Steps:
    peer = world.remote()
    make(peer, "t")
    body = batch_body(*[(b"x", b"")] * 100_000)
    yield
    while True:
        well(peer, SEND_BATCH, sending("t", batch=True), body)
        yield


@extreme("RocketMQ", "a message of 4 MiB")
def remote_large(world: World) -> Steps:
    peer = world.remote()
    make(peer, "t")
    yield
    while True:
        well(peer, SEND, sending("t"), b"x" * ((4 << 20) - 1_000))
        yield


@several("RocketMQ", {
    "plain": ("3,000 messages sent ahead", ("",)), "delayed": ("3,000 delayed messages sent ahead", ("DELAY\00115\2",)),
})  # fmt: skip
def remote_ahead(world: World, properties: str) -> Steps:
    peer = world.remote()
    make(peer, "t")
    yield
    for run in count():
        for index in range(3_000):
            peer.say(SEND, sending("t", properties=f"UNIQ_KEY\1{run}-{index}\2{properties}"), b"x")
        heard(peer, 3_000)
        yield


@several("RocketMQ", {
    "all": ("PULL of 32 among 500,000 tiny records of one batch", ("*",)),
    "tag": ("PULL by a tag that none of 500,000 records has", ("nobody",)),
})  # fmt: skip
def remote_pull(world: World, wanted: str) -> Steps:
    peer = world.remote()
    make(peer, "t")
    world.stored("t", of_bodies(nothing(500_000)))
    yield
    for run in count():
        peer.tell(PULL, pulling("t", 250_000 + run, wanted=wanted), b"", PATIENCE_S)
        yield


@extreme("RocketMQ", "QUERY_MESSAGE of a key that 10,000 messages have")
def remote_query(world: World) -> Steps:
    peer = world.remote()
    make(peer, "t")
    for _ in range(10):
        world.stored("t", of_bodies(b"\1\2v\2\x08KEYS\4kk" for _ in range(1_000)))
    world.until(lambda: world.metric("halfmoon_key_index_behind_bytes") == 0)
    wanted = said(topic="t", key="kk", maxNum=64, beginTimestamp=0, endTimestamp=2**62)
    yield
    while True:
        peer.tell(QUERY, wanted, b"", PATIENCE_S)
        yield


def heartbeat(client_id: str, groups: list[str], topics: list[str]) -> bytes:
    subscriptions = [{"topic": topic, "subString": "*", "expressionType": "TAG", "subVersion": 1} for topic in topics]
    consumers: list[dict[str, Any]] = [
        {"groupName": group, "messageModel": "CLUSTERING", "consumeType": "CONSUME_PASSIVELY",
         "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": subscriptions}
        for group in groups
    ]  # fmt: skip
    return json.dumps({"clientID": client_id, "consumerDataSet": consumers}, separators=(",", ":")).encode()


@several("RocketMQ", {
    "groups": ("a heartbeat of 1,000 groups", (1_000, 1)), "topics": ("a heartbeat of 5,000 subscriptions", (1, 5_000)),
    "both": ("a heartbeat of 200 groups with 200 subscriptions each", (200, 200)),
})  # fmt: skip
def remote_heartbeat(world: World, groups: int, topics: int) -> Steps:
    peer = world.remote()
    yield
    for run in count():
        body = heartbeat("c", [f"g{run}-{index}" for index in range(groups)], [f"t{index}" for index in range(topics)])
        peer.tell(HEARTBEAT, {}, body, PATIENCE_S)
        yield


@extreme("RocketMQ", "500 consumers of one group send heartbeats")
def remote_members(world: World) -> Steps:
    peers = [world.remote() for _ in range(500)]
    make(peers[0], "t", 16)
    yield
    for run in count():
        numbers = [
            peer.say(HEARTBEAT, {}, heartbeat(f"c{index}", [f"g{run}"], ["t"])) for index, peer in enumerate(peers)
        ]
        for peer, number in zip(peers, numbers, strict=True):
            peer.hear(number, PATIENCE_S)
        yield


@extreme("RocketMQ", "LOCK_BATCH_MQ of 10,000 queues")
def remote_locks(world: World) -> Steps:
    peer = world.remote()
    make(peer, "t", 1_000)
    queues = [{"topic": "t", "brokerName": "halfmoon", "queueId": index % 1_000} for index in range(10_000)]
    body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": queues}).encode()
    yield
    while True:
        peer.tell(LOCK, {}, body, PATIENCE_S)
        yield


@extreme("RocketMQ", "the list of 5,000 topics, and 1,000 routes asked for ahead")
def remote_routes(world: World) -> Steps:
    for first in range(0, 5_000, 500):
        world.topics({f"t{index}": 1 for index in range(first, first + 500)})
    peer = world.remote_names()
    yield
    while True:
        peer.tell(TOPICS, {}, b"", PATIENCE_S)
        for index in range(1_000):
            peer.say(ROUTE, said(topic=f"t{index}"))
        heard(peer, 1_000)
        yield
