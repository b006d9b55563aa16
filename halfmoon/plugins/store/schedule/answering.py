"""What is asked about schedules, by the command line and by programs (halfmoon/hooks/schedules.py).

Who makes a schedule needs Write on its topic, who changes somebody else's Alter; who sees one needs Describe, and Read
to see its message.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from halfmoon.plugin import BrokerError, Fault, FeatureContext
from halfmoon.plugin.moving import (
    ChangeSchedule,
    CreateSchedule,
    ListSchedules,
    Schedule,
    ScheduleAnswer,
    ScheduleAsker,
    ScheduleQuestion,
)
from halfmoon.plugins.store.schedule import times
from halfmoon.plugins.store.schedule.book import Book
from halfmoon.plugins.store.schedule.firing import Firing
from halfmoon.plugins.store.schedule.records import Policy, Progress, Recurring, Row, batch_of, of_end, of_schedule
from halfmoon.plugins.store.schedule.taking import check_message, message_headers

MOST_LISTED = 1_000
MOST_TIMES = 100
MOST_BYTES = 4 << 20
"""Of messages in one answer, about."""


class Answering:
    def __init__(self, ctx: FeatureContext, book: Book, firing: Firing, missed: Policy) -> None:
        """`missed`: what becomes of missed times where the question does not say it."""
        self._topics = ctx.topics
        self._writer = ctx.writer
        self._clock = ctx.clock
        self._book = book
        self._firing = firing
        self._missed = missed

    def ask(self, question: ScheduleQuestion, asker: ScheduleAsker) -> ScheduleAnswer:
        """As of Schedules.ask."""
        self._book.check_ready()
        if isinstance(question, ListSchedules):
            return self._list(question, asker)
        if isinstance(question, CreateSchedule):
            made = [self._create(question, asker)]
        else:
            made = self._change(question, asker)
        self._firing.wake()
        return ScheduleAnswer(tuple(self._shown(each, asker, 1) for each in made))

    # -- looking -------------------------------------------------------------------------------------------------------

    def _list(self, question: ListSchedules, asker: ScheduleAsker) -> ScheduleAnswer:
        most = max(1, min(question.most, MOST_LISTED))
        count = max(0, min(question.times, MOST_TIMES))
        found = self._found(question.topic, question.name, asker)
        left = sorted((each for each in found if each.id > question.after), key=lambda each: each.id)
        shown: list[Schedule] = []
        size = 0
        for each in left[:most]:
            size += each.message_bytes
            if shown and size > MOST_BYTES:
                break
            shown.append(self._shown(each, asker, count))
        return ScheduleAnswer(tuple(shown), more=len(shown) < len(left))

    def _found(self, topic: str | None, name: str | None, asker: ScheduleAsker) -> list[Recurring]:
        """Those that the asker may know of."""
        return [
            each
            for each in (self._book if topic is None else self._book.of_topic(topic))
            if (name is None or each.name == name) and asker.allows("describe", each.topic)
        ]

    def _shown(self, schedule: Recurring, asker: ScheduleAsker, count: int) -> Schedule:
        progress = schedule.progress
        upcoming: Sequence[int] = ()
        if not schedule.paused:
            upcoming = times.next_times(schedule.cron, schedule.zone, progress.upto_ms, count)
        shown = Schedule(
            schedule.topic, schedule.partition, schedule.name, schedule.cron, schedule.zone, schedule.missed,
            "paused" if schedule.paused else "active", schedule.principal, schedule.created_ms, tuple(upcoming),
            progress.last_ms, progress.fired, progress.missed, progress.refused, progress.problem,
        )  # fmt: skip
        if not asker.allows("read", schedule.topic):
            return shown
        return replace(shown, shows=True, key=schedule.key, value=schedule.value, headers=schedule.headers)

    # -- changing ------------------------------------------------------------------------------------------------------

    def _create(self, question: CreateSchedule, asker: ScheduleAsker) -> Recurring:
        """Raises BrokerError."""
        if not asker.allows("write", question.topic):
            raise BrokerError(Fault.TOPIC_AUTHORIZATION_FAILED)
        topic = self._topics.get(question.topic)
        if topic is None or not 0 <= question.partition < len(topic.partitions):
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.partitions[question.partition].is_remote():
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
        if topic.internal or topic.view is not None:
            raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{topic.name}' is internal, or a view")
        if topic.rules.compacts and question.key is None:
            raise BrokerError(Fault.INVALID_RECORD, f"topic '{topic.name}' is compacted: its messages need a key")
        check_message(dict(question.headers))
        now_ms = self._clock.wall_ms()
        asked = Recurring(
            topic.name, question.partition, question.name, topic.id.hex(), question.cron, question.zone,
            question.missed or self._missed, question.key, question.value,
            message_headers(question.headers), asker.principal, asker.host, now_ms, Progress(now_ms), question.paused,
        )  # fmt: skip
        known = self._book.get(asked.id)
        if known is not None and not question.replace and not known.says(asked):
            raise BrokerError(Fault.DUPLICATE_RESOURCE, f"there is a schedule {asked.id}, and it says something else")
        made = self._book.put(asked, lambda operation: asker.demands(operation, asked.topic), {})
        if made is not None:
            self._write([of_schedule(made, now_ms)])
            self._book.hold(made)
        return self._book.get(asked.id) or asked

    def _change(self, question: ChangeSchedule, asker: ScheduleAsker) -> list[Recurring]:
        """Those of the name, as they are then, or were if they are cancelled. Raises BrokerError."""
        found = [
            each
            for each in self._found(question.topic, question.name, asker)
            if question.partition in (-1, each.partition)
        ]
        if not found:
            where = "" if question.partition == -1 else f" in its partition {question.partition}"
            raise BrokerError(
                Fault.RESOURCE_NOT_FOUND, f"topic '{question.topic}' has no schedule '{question.name}'{where}"
            )
        for each in found:
            if each.principal != asker.principal:
                asker.demands("alter", each.topic)
            elif not asker.allows("write", each.topic):
                raise BrokerError(Fault.TOPIC_AUTHORIZATION_FAILED)
        now_ms = self._clock.wall_ms()
        rows: list[Row] = []
        changed: list[Recurring] = []
        for each in found:
            if question.to == "cancelled":
                rows += of_end(each.id, now_ms)
                continue
            made = self._book.changed(each, paused=question.to == "paused", now_ms=now_ms)
            if made is not None:
                rows.append(of_schedule(made, now_ms))
                changed.append(made)
        if rows:
            self._write(rows)
        for made in changed:
            self._book.hold(made)
        if question.to == "cancelled":
            for each in found:
                self._book.ended(each.id)
            return found
        return [self._book.get(each.id) or each for each in found]

    def _write(self, rows: Sequence[Row]) -> None:
        """Raises BrokerError."""
        self._writer.append_relayed(self._firing.kept(), batch_of(rows))
