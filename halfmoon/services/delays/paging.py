"""Putting the answers about scheduled messages together, without I/O: a generator yields questions and is sent what
came of each; its own return value is the result. So threads, asyncio and the command line share it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from msgspec.structs import replace

from halfmoon.services.delays.questions import (
    MOST,
    After,
    Answer,
    Cancel,
    Changed,
    Count,
    Cursor,
    Id,
    List,
    Question,
    Reschedule,
    ScheduledCount,
    ScheduledMessage,
    Selection,
    parse_id,
)

Result = TypeVar("Result")
Asking = Generator[Question, Answer, Result]


class UnexpectedAnswerError(Exception):
    """The broker has answered something else."""


class PartlyChangedError(Exception):
    """Asking has failed, for the reason that is its cause, after some messages were changed."""

    def __init__(self, changed: Changed) -> None:
        super().__init__(changed.count)
        self.changed = changed


def order(message: ScheduledMessage) -> tuple[int, Id]:
    """By which lists are sorted."""
    place = parse_id(message.id)
    if place is None:
        raise UnexpectedAnswerError(message.id)
    return message.due_ms, place


def page(
    selection: Selection, most: int, after: ScheduledMessage | None = None
) -> Asking[tuple[list[ScheduledMessage], bool]]:
    """Up to `most` messages, those that are due first, and whether there are more. `after`: behind this one."""
    found: list[ScheduledMessage] = []
    more = False
    while len(found) < most:
        some, more = yield from _some(selection, min(most - len(found), MOST), after)
        found += some
        if not more or not some:
            break
        after = some[-1]
    return found, more


def _some(
    selection: Selection, most: int, after: ScheduledMessage | None
) -> Asking[tuple[list[ScheduledMessage], bool]]:
    found: list[ScheduledMessage] = []
    horizon: tuple[int, Id] | None = None
    """Behind it there are messages that no answer has told of."""
    next: Cursor | None = None
    while True:
        behind = None if after is None else After(after.due_ms, after.id)
        listed = (yield List(selection, most, behind, next)).listed
        if listed is None:
            raise UnexpectedAnswerError("no list")
        found += listed.messages
        if listed.more and listed.messages:
            last = order(listed.messages[-1])
            horizon = last if horizon is None else min(horizon, last)
        if listed.next is None:
            break
        next = listed.next
    found.sort(key=order)
    kept = [each for each in found if horizon is None or order(each) <= horizon][:most]
    return kept, horizon is not None or len(kept) < len(found)


def count(selection: Selection) -> Asking[list[ScheduledCount]]:
    """By kind and topic."""
    found: list[tuple[ScheduledCount, ...]] = []
    next: Cursor | None = None
    while True:
        counted = (yield Count(selection, next)).counted
        if counted is None:
            raise UnexpectedAnswerError("no count")
        found.append(counted.topics)
        if counted.next is None:
            return added(found)
        next = counted.next


def added(counts: Iterable[Iterable[ScheduledCount]]) -> list[ScheduledCount]:
    """Those of the same topics together."""
    found: dict[tuple[str, str], ScheduledCount] = {}
    for each in chain.from_iterable(counts):
        known = found.get((each.kind, each.topic))
        found[each.kind, each.topic] = each if known is None else _both(known, each)
    return [found[name] for name in sorted(found)]


def _both(one: ScheduledCount, other: ScheduledCount) -> ScheduledCount:
    return replace(
        one,
        count=one.count + other.count,
        first_due_ms=min(one.first_due_ms, other.first_due_ms),
        last_due_ms=max(one.last_due_ms, other.last_due_ms),
    )


def change(question: Cancel | Reschedule, ids: Sequence[str] = ()) -> Asking[Changed]:
    """Carry it out, of all that is selected, or of these ids. Raises PartlyChangedError."""
    answers: list[Changed] = []
    at = 0
    while True:
        if question.selection is None:
            if at >= len(ids):
                return together(answers)
            question = replace(question, ids=tuple(ids[at : at + MOST]))
            at += MOST
        try:
            answer = yield question
        except Exception as error:
            changed = together(answers)
            if not changed.count:
                raise
            raise PartlyChangedError(changed) from error
        if answer.changed is None:
            raise UnexpectedAnswerError("nothing is said to be changed")
        answers.append(answer.changed)
        if question.selection is not None:
            if answer.changed.next is None:
                return together(answers)
            question = replace(question, next=answer.changed.next)


def together(answers: Iterable[Changed]) -> Changed:
    """Of several shards, or several questions."""
    answers = list(answers)
    return Changed(
        sum(each.count for each in answers),
        tuple(missing for each in answers for missing in each.missing),
        tuple(sorted({refused for each in answers for refused in each.refused})),
        tuple(sorted({topic for each in answers for topic in each.topics})),
        sum(each.too_far for each in answers),
    )


def run(asking: Asking[Result], ask: Callable[[Question], Answer]) -> Result:
    """Carry it out by a function that waits for the answer. Raises what that raises."""
    try:
        question = next(asking)
        while True:
            try:
                answer = ask(question)
            except Exception as error:
                question = asking.throw(error)
            else:
                question = asking.send(answer)
    except StopIteration as done:
        result: Result = done.value
        return result
