"""The order of one connection's answers, and their bytes."""

from __future__ import annotations

from typing import Any

import pytest

from halfmoon.adapters.kafka.answers import Answers, Slot, encode
from halfmoon.adapters.kafka.registry import Deferred
from halfmoon.adapters.kafka.routes import Route
from halfmoon.adapters.tcp.connection import JOIN_BELOW_BYTES, Buffer
from halfmoon.adapters.tcp.counters import RequestMetrics


def route(key: int, *, flexible: bool = False) -> Route:
    def handler(context: Any, request: Any) -> object:
        raise NotImplementedError

    return Route(
        key,
        0,
        "Any",
        handler,
        RequestMetrics(),
        raw=True,
        flexible_request=flexible,
        flexible_response=flexible,
        sliced=False,
        keeps_body=False,
    )


class Owed:
    """A connection's answers; what has left is in `out`."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.out: list[Buffer] = []
        self.left: list[int | None] = []

    def place(self, route: Route, correlation_id: int, deferred: Deferred | None = None) -> Slot:
        return self.answers.place(self.answered, route, correlation_id, deferred, 0.0)

    def answered(self, slot: Slot, value: object) -> None:
        slot.buffers, slot.size = encode(slot.route, slot.correlation_id, value)
        self.left.append(self.answers.take_ready(slot, self.out))


def test_an_answer_leaves_when_all_before_it_have_left() -> None:
    owed = Owed()
    first, second, third = (owed.place(route(3), number) for number in (1, 2, 3))
    third.finish(b"ccc")
    second.finish(b"bb")
    assert owed.out == []
    assert owed.left == [None, None]
    assert owed.answers.ready_bytes == (8 + 3) + (8 + 2)
    first.finish(b"a")
    assert b"".join(owed.out) == (b"\0\0\0\x05\0\0\0\1a\0\0\0\x06\0\0\0\2bb\0\0\0\x07\0\0\0\3ccc")
    assert owed.left[-1] == len(b"".join(owed.out))
    assert owed.answers.ready_bytes == 0
    assert not owed.answers.slots


def test_what_comes_behind_the_missing_one_stays() -> None:
    owed = Owed()
    first = owed.place(route(3), 1)
    owed.place(route(3), 2)
    third = owed.place(route(3), 3)
    third.finish(b"ccc")
    first.finish(b"a")
    assert len(owed.out) == 1
    assert owed.answers.ready_bytes == 8 + 3


def test_only_the_last_is_hurried_by_a_request_and_all_by_the_end() -> None:
    owed = Owed()
    hurried: list[int] = []
    for number in (1, 2):
        waiting: Deferred = Deferred()
        waiting.hurry = lambda number=number: hurried.append(number)
        owed.place(route(1), number, waiting)
    owed.answers.hurry_last()
    assert hurried == [2]
    owed.answers.hurry()
    assert hurried == [2, 1, 2]


@pytest.mark.parametrize(("keys", "depend"), [((), True), ((11, 14), True), ((11, 1), False)])
def test_joins_depend_on_other_members(keys: tuple[int, ...], depend: bool) -> None:
    owed = Owed()
    for key in keys:
        owed.place(route(key), 1)
    assert owed.answers.depend_on_others() is depend


def test_the_size_does_not_count_itself() -> None:
    assert encode(route(3), 7, b"xy") == ([b"\0\0\0\x06\0\0\0\7xy"], 10)
    assert encode(route(3, flexible=True), 7, b"xy") == ([b"\0\0\0\x07\0\0\0\7\0xy"], 11)
    assert encode(route(3), 7, [b"x", b"y"]) == ([b"\0\0\0\x06\0\0\0\7", b"x", b"y"], 10)
    assert encode(route(3), 7, None) == ([], 0)


def test_a_large_answer_is_not_copied() -> None:
    large = bytes(JOIN_BELOW_BYTES)
    buffers, _ = encode(route(3), 7, large)
    assert buffers[1] is large
