"""Share groups of a process with several shards: what its shards have in common, and what they answer others."""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.adapters.kafka.lookup import epoch_at
from halfmoon.adapters.kafka.shard_asking import AllShards
from halfmoon.cluster.asking import Answers, Told, nobody
from halfmoon.cluster.messages import (
    Done,
    ForgetShare,
    ForgetShareGroups,
    ResetShare,
    ShareMemberGone,
    ShareOffsets,
    ShareOffsetsFound,
)
from halfmoon.cluster.shared import SharedCatalog
from halfmoon.core.catalog.topics import Partition, RemotePartition
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.assembly import Node
from halfmoon.services.share.delivery import ShareDelivery
from halfmoon.services.share.service import within
from halfmoon.services.share.sessions import ShareSessions


def finder(shared: SharedCatalog) -> Callable[[int, int], int]:
    """(topic number, partition) → its shard; −1 where nobody knows the partition."""

    def shard_of(number: int, index: int) -> int:
        shards = shared.placements.get(number, b"")
        return shards[index] if index < len(shards) else -1

    return shard_of


class JoinedShares:
    """What the share groups of this process's shards have in common."""

    def __init__(self, shards: AllShards, max_sessions: int) -> None:
        self._shards = shards
        self._sessions = ShareSessions(max_sessions)
        self._deliveries: list[ShareDelivery] = []

    def add(self, node: Node) -> None:
        """A shard of this process, before its first request. The first one, which stays, counts the sessions."""
        is_first = not self._deliveries
        self._deliveries.append(node.shares.delivery)
        node.shares.join(self._sessions, self._deliveries, self._gone, counts_sessions=is_first)
        node.services.add(self._shards)

    def remove(self, node: Node) -> None:
        if node.shares.delivery in self._deliveries:
            self._deliveries.remove(node.shares.delivery)

    def _gone(self, group: str, member: str) -> None:
        # Whoever cannot be reached now releases it when the connection ends, or its lock.
        for shard in self._shards.elsewhere():
            self._shards.asking.ask(shard, ShareMemberGone(group, member), nobody)


def share_answers(node: Node) -> Answers:
    """What a shard answers."""
    answers = _Answers(node)
    return {
        ShareOffsets: answers.offsets,
        ResetShare: answers.reset,
        ForgetShare: answers.forget,
        ForgetShareGroups: answers.forget_groups,
        ShareMemberGone: answers.member_gone,
    }


class _Answers:
    def __init__(self, node: Node) -> None:
        self._kernel = node.kernel
        self._catalog = node.kernel.catalog
        self._shares = node.shares

    def offsets(self, question: ShareOffsets, told: Told) -> None:
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
        self._tell(told, ShareOffsetsFound(rows))

    def reset(self, question: ResetShare, told: Told) -> None:
        def change() -> None:
            starts = [(self._own(number, index), offset) for number, index, offset in question.starts]
            self._shares.reset(question.group, [(each, within(each, offset)) for each, offset in starts])

        self._change(change, told)

    def forget(self, question: ForgetShare, told: Told) -> None:
        def change() -> None:
            self._shares.forget(question.group, [self._own(*place) for place in question.places])

        self._change(change, told)

    def forget_groups(self, question: ForgetShareGroups, told: Told) -> None:
        def change() -> None:
            for group in question.groups:
                self._shares.forget_group(group)

        self._change(change, told)

    def member_gone(self, question: ShareMemberGone, told: Told) -> None:
        self._shares.member_gone(question.group, question.member)
        told(Done())

    def _own(self, number: int, index: int) -> Partition:
        """Raises BrokerError."""
        partition = self._catalog.partition(number, index)
        if partition is None or isinstance(partition, RemotePartition):  # it is not known here yet, or any more
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def _change(self, change: Callable[[], None], told: Told) -> None:
        try:
            change()
        except BrokerError as error:
            told(error)
        else:
            self._tell(told, Done())

    def _tell(self, told: Told, answer: object) -> None:
        """Once all that it rests on is durable."""
        kernel = self._kernel
        kernel.when_durable(kernel.turn.state_position, lambda error: told(answer if error is None else error))
