"""What another node asks in the name of its client is answered only while the shard is this one's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from halfmoon.cluster.asking import Told
from halfmoon.cluster.messages import CommitProgress, Done, ProgressRead, ReadProgress
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.workers.confirmed import CONFIRMED, confirmed


class Asked:
    def __init__(self) -> None:
        self.waiting: list[Callable[[bool], None]] = []
        self.told: list[object] = []
        self.fails = False
        self.answers: Any = confirmed(self.waiting.append, {ReadProgress: self._read, CommitProgress: self._commit})

    def _read(self, _question: object, told: Told) -> None:
        told(BrokerError(Fault.NOT_COORDINATOR) if self.fails else ProgressRead([]))

    def _commit(self, _question: object, told: Told) -> None:
        told(Done())


@pytest.mark.parametrize("certain", [True, False])
def test_it_is_told_after_a_look(certain: bool) -> None:
    asked = Asked()
    asked.answers[ReadProgress](None, asked.told.append)
    assert asked.told == []
    asked.waiting.pop()(certain)
    (found,) = asked.told
    if certain:
        assert found == ProgressRead([])
    else:
        assert isinstance(found, BrokerError)
        assert found.fault is Fault.NOT_LEADER_OR_FOLLOWER


def test_what_changes_something_and_what_is_refused_needs_no_look() -> None:
    asked = Asked()
    asked.answers[CommitProgress](None, asked.told.append)
    asked.fails = True
    asked.answers[ReadProgress](None, asked.told.append)
    assert isinstance(asked.told[0], Done)
    assert isinstance(asked.told[1], BrokerError)
    assert asked.waiting == []


def test_workers_of_one_machine_need_none() -> None:
    answer = object()
    assert confirmed(None, {ReadProgress: answer}) == {ReadProgress: answer}  # type: ignore[dict-item]
    assert ReadProgress in CONFIRMED
