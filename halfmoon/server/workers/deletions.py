"""Deletions of topics: what a shard's features need stays (core/features.TopicPolicy.deleting).

All shards are asked before the change is made. What comes to wait in one of them meanwhile is too late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from halfmoon.cluster.asking import Answers, Asking, Told
from halfmoon.cluster.messages import AskDeletion, DeletionAnswered, error_of, refusal_of
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.server.assembly import Node
    from halfmoon.server.workers.front import FrontTopics


class Deletions:
    """What a process asks."""

    def __init__(self, administration: FrontTopics, shards: int, asking: Asking) -> None:
        self._administration = administration
        self._shards = shards
        self._asking = asking

    def ask(self, topics: Sequence[Topic], then: Callable[[], None]) -> None:
        """Ask all shards, and call `then`: the deletion of a topic that one needs is refused then. Where a shard cannot
        be reached, topics that features provide stay."""
        refusals: dict[int, BrokerError] = {}
        numbers = [topic.number for topic in topics]
        provides = self._administration.policies.provides
        provided = [topic.number for topic in topics if provides(topic.name)]
        left = self._shards

        def told(shard: int, answer: object) -> None:
            nonlocal left
            if isinstance(answer, DeletionAnswered):
                refusals.update((number, error_of(refusal)) for number, refusal in answer.refused)
            else:
                error = BrokerError(
                    Fault.REQUEST_TIMED_OUT, f"shard {shard} cannot be asked now whether it needs the topic"
                )
                refusals.update((number, error) for number in provided if number not in refusals)
            left -= 1
            if not left:
                self._administration.refuse_deletions(numbers, refusals)
                then()

        for shard in range(self._shards):
            self._asking.ask(shard, AskDeletion(numbers), partial(told, shard))


def deletion_answers(node: Node, catch_up: Callable[[Callable[[BrokerError | None], None]], None]) -> Answers:
    """What a shard answers. `catch_up` has its process learn what others have changed in the catalog, and says when: a
    feature of this shard may need a topic that it made just now, for a message that came here."""
    kernel = node.kernel

    def answer(question: AskDeletion, told: Told) -> None:
        if all(number in kernel.catalog.by_number for number in question.topics):
            told(look(question))
        else:
            catch_up(lambda error: told(error or look(question)))

    def look(question: AskDeletion) -> DeletionAnswered:
        refused = []
        for number in question.topics:
            topic = kernel.catalog.by_number.get(number)
            if topic is not None:
                try:
                    for deleting in kernel.administration.policies.deleting:
                        deleting(topic)
                except BrokerError as error:
                    refused.append((number, refusal_of(error)))
        return DeletionAnswered(refused)

    return {AskDeletion: answer}
