"""A shard that cannot be reached is asked again, for a while."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halfmoon.cluster.asking import PATIENCE_S, PAUSE_S, PatientAsking, Told
from halfmoon.cluster.messages import Done, NewProducer, Question
from halfmoon.errors import BrokerError, Fault

MOVED = BrokerError(Fault.NOT_LEADER_OR_FOLLOWER, "shard 3 is not here")


class Shards:
    """Give answers in turn, the last one for ever; and a clock that goes on by what is waited for."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.now_s = 100.0

    def ask(self, shard: int, question: Question, told: Told) -> None:
        assert (shard, question) == (3, NewProducer())
        self.asked += 1
        told(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.now_s += delay_s
        callback()

    def told(self) -> list[object]:
        found: list[object] = []
        PatientAsking(self, self.later, lambda: self.now_s).ask(3, NewProducer(), found.append)
        return found


def test_until_it_is_elsewhere() -> None:
    shards = Shards(MOVED, MOVED, Done())
    assert shards.told() == [Done()]
    assert shards.asked == 3
    assert shards.now_s == pytest.approx(100 + 2 * PAUSE_S)


@pytest.mark.parametrize("answer", [Done(), BrokerError(Fault.GROUP_ID_NOT_FOUND), BrokerError(Fault.NOT_COORDINATOR)])
def test_what_it_says_is_told_at_once(answer: object) -> None:
    shards = Shards(answer)
    assert shards.told() == [answer]
    assert shards.asked == 1


def test_not_for_ever() -> None:
    shards = Shards(MOVED)
    assert shards.told() == [MOVED]
    assert 100 + PATIENCE_S - PAUSE_S <= shards.now_s <= 100 + PATIENCE_S
