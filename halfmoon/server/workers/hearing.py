"""Batches that all shards have to hear of, whichever of them they were sent to: ends of half messages.

A half message waits in its target's shard, and nobody knows in which one who ends it. What ends nothing in a shard is
nothing there, and what comes twice counts once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfmoon.adapters.tcp.appending import append_late
from halfmoon.adapters.tcp.steps import InThread, Soon, run_steps
from halfmoon.cluster.asking import Answers, Told
from halfmoon.cluster.messages import Done, HearBatch
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.core.append_types import Produced
    from halfmoon.server.assembly import Node


def hearing_answers(node: Node, in_thread: InThread, soon: Soon) -> Answers:
    """What a shard answers."""
    kernel = node.kernel

    def hear(question: HearBatch, told: Told) -> None:
        topic = kernel.catalog.by_number.get(question.topic)
        if topic is None:  # it is not known here yet, or any more
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        partition = kernel.administration.first_partition(topic.name)

        def appended(produced: Produced) -> None:
            kernel.when_durable(produced.position, lambda error: told(error or Done()))

        def failed(error: Exception) -> None:
            if not isinstance(error, BrokerError):
                error = BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the batch could not be appended: {error}")
            told(error)

        steps = append_late(kernel, partition, memoryview(bytearray(question.batch)))
        run_steps(steps, in_thread, appended, failed, soon)

    return {HearBatch: hear}
