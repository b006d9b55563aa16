"""Share groups of a process with several shards: what its shards have in common, and what they answer others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halfmoon.adapters.kafka.lookup import epoch_at
from halfmoon.adapters.kafka.shard_asking import AllShards
from halfmoon.cluster.asking import Answerer, Answers, Asking, Told, nobody
from halfmoon.cluster.messages import (
    Done,
    ForgetShare,
    ForgetShareGroups,
    ResetShare,
    ShareMemberGone,
    ShareOffsets,
    ShareOffsetsFound,
)
from halfmoon.core.catalog.topics import Partition, RemotePartition
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.assembly import Node
from halfmoon.server.workers.answering import once_durable
from halfmoon.services.share.delivery import ShareDelivery
from halfmoon.services.share.service import within
from halfmoon.services.share.sessions import ShareSessions


class JoinedShares:
    """What the share groups of this process's shards have in common."""

    def __init__(self, shards: AllShards, asking: Asking, max_sessions: int) -> None:
        """`asking`: asks once."""
        self._shards = shards
        self._asking = asking
        self._sessions = ShareSessions(max_sessions)
        self._deliveries: list[ShareDelivery] = []

    def add(self, node: Node) -> None:
        """A shard of this process, before its first request. The first one, which stays, counts the sessions."""
        is_first = not self._deliveries
        self._deliveries.append(node.shares.delivery)
        node.shares.join(self._sessions, self._deliveries, self._gone, counts_sessions=is_first)
        node.services.add(self._shards)

    def remove(self, node: Node) -> None:
        """A shard goes to another process: its partitions stand here no more."""
        if node.shares.delivery in self._deliveries:
            self._deliveries.remove(node.shares.delivery)
            node.shares.delivery.send_away()

    def _gone(self, group: str, member: str) -> None:
        # Whoever cannot be reached now releases it when the connection ends, or its lock.
        for shard in self._shards.elsewhere():
            self._asking.ask(shard, ShareMemberGone(group, member), nobody)


def share_answers(node: Node) -> Answers:
    """What a shard answers."""
    kernel, answers = node.kernel, _Answers(node)

    def durable(make: Callable[[Any], object]) -> Answerer:
        """Once all that the answer rests on is durable."""
        return once_durable(kernel, lambda question: (make(question), kernel.turn.state_position))

    return {
        ShareOffsets: durable(answers.offsets),
        ResetShare: durable(answers.reset),
        ForgetShare: durable(answers.forget),
        ForgetShareGroups: durable(answers.forget_groups),
        ShareMemberGone: answers.member_gone,
    }


class _Answers:
    """`offsets`, …: raise BrokerError."""

    def __init__(self, node: Node) -> None:
        self._catalog = node.kernel.catalog
        self._shares = node.shares

    def offsets(self, question: ShareOffsets) -> ShareOffsetsFound:
        shares = self._shares
        if question.places is None:
            asked = shares.looked_at(question.group)
        else:
            found = [self._catalog.partition(*place) for place in question.places]
            asked = [partition for partition in found if partition is not None]
        rows = []
        for partition in asked:
            progress = shares.progress(question.group, partition)
            if progress is not None:
                epoch = max(0, epoch_at(partition, progress.start))
                rows.append((partition.topic.number, partition.index, progress.start, epoch, progress.lag))
        return ShareOffsetsFound(rows)

    def reset(self, question: ResetShare) -> Done:
        starts = [(self._own(number, index), offset) for number, index, offset in question.starts]
        self._shares.reset(question.group, [(each, within(each, offset)) for each, offset in starts])
        return Done()

    def forget(self, question: ForgetShare) -> Done:
        self._shares.forget(question.group, [self._own(*place) for place in question.places])
        return Done()

    def forget_groups(self, question: ForgetShareGroups) -> Done:
        for group in question.groups:
            self._shares.forget_group(group)
        return Done()

    def member_gone(self, question: ShareMemberGone, told: Told) -> None:
        self._shares.member_gone(question.group, question.member)
        told(Done())

    def _own(self, number: int, index: int) -> Partition:
        """Raises BrokerError."""
        partition = self._catalog.partition(number, index)
        if partition is None or isinstance(partition, RemotePartition):  # it is not known here yet, or any more
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        return partition
