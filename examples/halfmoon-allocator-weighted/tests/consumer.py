"""What README shows: a consumer that asks for the strategy. `python consumer.py SERVERS NAME TOPIC` says how many
partitions it has, whenever that changes, until it is ended."""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, TopicPartition

servers, name, topic = sys.argv[1:]
consumer = Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": "billing",
        "group.protocol": "consumer",
        "group.remote.assignor": "weighted",
        "client.id": name,  # "big-1" has three times the partitions of "small-1"
    }
)
owned: set[int] = set()


def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
    owned.update(partition.partition for partition in partitions)


def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
    owned.difference_update(partition.partition for partition in partitions)


consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
said = -1
while True:
    consumer.poll(0.1)
    if len(owned) != said:
        said = len(owned)
        print(said, flush=True)
