"""Answers to other processes that are told only once it is certain that they were this one's to give.

As adapters/kafka/confirming.py, for what another node asks in the name of its client: that one's own look says nothing
of the shards that are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halfmoon.cluster.messages import QueueEnds, ReadProgress, ShareOffsets
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.shards import Confirm
    from halfmoon.cluster.asking import Answerer, Answers, Told
    from halfmoon.cluster.messages import Question

CONFIRMED: Final = frozenset({ReadProgress, QueueEnds, ShareOffsets})
"""Offsets that groups have committed, ends of queues, and where share groups are. What changes something is certain by
its commit."""


def confirmed(confirm: Confirm | None, answers: Answers) -> Answers:
    """`confirm`: as of adapters/kafka/shards.Homes."""
    if confirm is None:
        return answers
    return {kind: _later(confirm, each) if kind in CONFIRMED else each for kind, each in answers.items()}


def _later(confirm: Confirm, answerer: Answerer) -> Answerer:
    def answer(question: Question, told: Told) -> None:
        def made(found: object) -> None:
            if isinstance(found, BrokerError):
                told(found)
                return
            # What was found before this look is what was true then, if the shard was still this process's later.
            confirm(lambda certain: told(found if certain else _unsure()))

        answerer(question, made)

    return answer


def _unsure() -> BrokerError:
    return BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "another node may have what was asked about")
