"""Filtered views: topics that the broker fills from other topics (B39).

A view is an ordinary topic, but for this: it is defined by a source and a filter expression, its partition i is
filled from partition i of the source (`updater`), it grows with the source, and nobody else appends to it.

The definition stands in the topic's configurations (`definition`), where every Kafka tool can write it when the topic
is created and read it later; it cannot be changed. What it is bound to is in the record that creates the topic: the
source's number, which belongs to this source alone and not to a later namesake, and the offset that each partition
begins at.

Where the feature is off, nobody defines a view, and those that exist stay as they are: their partitions know how far
they have come, so they catch up when it is on again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from halfmoon.plugin import BrokerError, Fault, FeatureContext, FilterSyntaxError, MessageFilter
from halfmoon.plugin.moving import FROM_END, Binding, Feature, Partition, Topic, TopicPolicy, ViewChecks
from halfmoon.plugins.store.view import metrics
from halfmoon.plugins.store.view.definition import (
    VIEW_POSITION,
    VIEW_SOURCE,
    VIEW_STATE,
    Definition,
    definition,
    invalid,
    source_of,
    view_configs,
)
from halfmoon.plugins.store.view.updater import Tools, ViewCounters, ViewUpdater
from halfmoon.schema import control

SKIP_WARNING_MS = 3_600_000
"""For so long after a view had to skip something, health is yellow."""


class ViewReading(Struct, frozen=True):
    """A view's numbers, for metrics."""

    name: str
    lag: int
    """Source offsets that are still to be inspected."""
    counters: ViewCounters


class Views:
    """All views of a broker. Until `start` they are known, and not filled."""

    def __init__(self, ctx: FeatureContext) -> None:
        self._topics = ctx.topics
        self._writer = ctx.writer
        self._relays = ctx.relays
        self._clock = ctx.clock
        self._logger = ctx.plugin.logger
        self._tools = Tools(ctx.reader, ctx.writer, ctx.clock, self._logger, ctx.lifetimes)
        self._languages = ctx.filters
        self._updaters: dict[Partition, ViewUpdater] = {}
        self.followers: dict[Partition, dict[Partition, None]] = {}
        """Partition of a source → the views' partitions that are filled from it."""
        self._counters: dict[int, ViewCounters] = {}
        """By topic number of the view."""
        self._halted: dict[int, str] = {}
        """Topic number of a view → why it is not filled."""
        self._started = False

    def feature(self) -> Feature:
        return Feature(
            "view",
            start=self.start,
            checkpoint=self.save_progress,
            arrived=lambda arrivals: self.arrived(arrivals) if self.followers else None,
            topics=TopicPolicy(
                creating=self.bind,
                shows=source_of,
                configuring=self.check_change,
                changed=self.topics_changed,
            ),
            services=(ViewChecks(self.check),),
            topic_entries=self.entries,
            families=metrics.FAMILIES,
            read_metrics=lambda put: metrics.read(self.readings(), put),
            problems=self.problems,
            warnings=self.warnings,
        )

    # -- definitions -------------------------------------------------------------------------------------------------

    def bind(self, configs: Mapping[str, str], partitions: int) -> tuple[Binding | None, int]:
        """For a topic that is to be created with these configurations: what it is bound to if it is a view, and its
        number of partitions (−1 asks for the source's).

        Raises BrokerError: INVALID_CONFIG for a definition that cannot be met, INVALID_PARTITIONS.
        """
        view = definition(configs)
        if view is None:
            return None, partitions
        source = self._topics.get(view.source)
        if source is None:
            raise invalid(f"{VIEW_SOURCE}: there is no topic '{view.source}'")
        if source.internal:
            raise invalid(f"{VIEW_SOURCE}: topic '{view.source}' is internal")
        self._compile(view)
        count = len(source.partitions)
        if partitions not in (-1, count):
            raise BrokerError(
                Fault.INVALID_PARTITIONS,
                f"a view has the partitions of its source; '{source.name}' has {count}, not {partitions}",
            )
        return Binding(source.number, [_start(each, view) for each in source.partitions]), count

    def check(self, configs: Mapping[str, str]) -> None:
        """Raises BrokerError(INVALID_CONFIG) unless these configurations define a view, whatever topics there are."""
        self._topics.check_configs(configs)
        view = definition(configs)
        if view is None:
            raise invalid(f"a view needs {VIEW_SOURCE}, the topic that it is filled from")
        self._compile(view)

    def _compile(self, view: Definition) -> MessageFilter:
        """Raises BrokerError(INVALID_CONFIG)."""
        compiler = self._languages.get(view.language)
        if compiler is None:
            known = ", ".join(sorted(self._languages)) or "none"
            raise invalid(f"no enabled plugin offers the filter language '{view.language}' (there are: {known})")
        try:
            return compiler(view.expression)
        except FilterSyntaxError as error:
            raise invalid(f"{view.config}: {error}") from None

    def check_change(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Raises BrokerError(INVALID_CONFIG) where these configurations would define the topic anew."""
        if view_configs(configs) == view_configs(topic.configs):
            return
        if topic.view is None:
            raise invalid(f"topic '{topic.name}' is no view, and cannot become one: create a view")
        raise invalid(
            "the definition of a view never changes: create another one, and delete this one when it is not needed"
        )

    # -- filling -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to fill, wherever each view stopped."""
        self._started = True
        self.topics_changed()

    def topics_changed(self) -> None:
        """Topics were created, deleted or grown: fill what is new, remove what is gone."""
        if not self._started:
            return
        derived = self._topics.derived()
        if not derived and not self._updaters:
            return
        wanted: dict[Partition, Partition] = {}
        views = {view.number for view in derived}
        for view in derived:
            assert view.view is not None
            source = self._topics.by_number(view.view.source_number)
            if source is not None:
                both = zip(view.partitions, source.partitions, strict=False)
                wanted.update((own, its) for own, its in both if not own.is_remote() and not its.is_remote())
        for partition in [partition for partition in self._updaters if partition not in wanted]:
            self._remove(partition)
        for number in set(self._counters) - views:
            del self._counters[number]
        for number in set(self._halted) - views:
            del self._halted[number]
        for partition, source_partition in wanted.items():
            if partition not in self._updaters:
                self._add(partition, source_partition)

    def _add(self, partition: Partition, source: Partition) -> None:
        topic = partition.topic
        if topic.number in self._halted:
            return
        try:
            view = definition(topic.configs)
            assert view is not None
            message_filter = self._compile(view)
        except BrokerError as error:
            self._halted[topic.number] = error.message
            self._logger.error("event=view_halted view=%s reason=%s", topic.name, error.message)
            return
        counters = self._counters.setdefault(topic.number, ViewCounters())
        updater = self._updaters[partition] = ViewUpdater(self._tools, partition, source, message_filter, counters)
        self.followers.setdefault(source, {})[partition] = None
        self._relays.add(partition, updater)

    def _remove(self, partition: Partition) -> None:
        updater = self._updaters.pop(partition)
        followers = self.followers[updater.source]
        del followers[partition]
        if not followers:
            del self.followers[updater.source]
        self._relays.remove(partition)

    def arrived(self, sources: Iterable[Partition]) -> None:
        """Messages became visible in these partitions."""
        wake = self._relays.wake
        for source in sources:
            for partition in self.followers.get(source, ()):
                wake(partition)

    def save_progress(self) -> None:
        """Write down how far views have come where nothing matched since their last batch.

        Else a view that matches seldom would look again, after a restart, at all that it has passed since; and what has
        expired meanwhile would seem to be missing. Raises BrokerError.
        """
        moved = [
            (partition.topic.number, partition.index, updater.passed_offset)
            for partition, updater in self._updaters.items()
            if updater.passed_offset > partition.source_next
        ]
        if moved:
            self._writer.append_control(control.Relayed(moved))

    # -- how it goes -------------------------------------------------------------------------------------------------

    def readings(self) -> list[ViewReading]:
        """By view; halted ones too."""
        lags = dict.fromkeys(self._counters, 0)
        for partition, updater in self._updaters.items():
            lags[partition.topic.number] += updater.lag
        return [ViewReading(self._name(number), lag, self._counters[number]) for number, lag in lags.items()]

    def _name(self, number: int) -> str:
        """Of a view that exists."""
        view = self._topics.by_number(number)
        assert view is not None
        return view.name

    def state(self, view: Topic) -> str:
        """In a few words: filled, or why not."""
        assert view.view is not None
        if self._topics.by_number(view.view.source_number) is None:
            return "its source was deleted"
        return self._halted.get(view.number, "filled")

    def position(self, view: Topic) -> list[tuple[int, int]]:
        """By partition (source offset, view offset): what matches before the one is in the view before the other.

        The view's offset may be ahead of what is visible there.
        """
        updaters = [(partition, self._updaters.get(partition)) for partition in view.partitions]
        return [
            (partition.source_next if updater is None else updater.passed_offset, partition.next_offset)
            for partition, updater in updaters
        ]

    def entries(self, topic: Topic) -> dict[str, str]:
        """How a view is getting on, as if it were configurations: Kafka's protocol has no other place for it."""
        if topic.view is None:
            return {}
        position = ",".join(f"{source}:{own}" for source, own in self.position(topic))
        return {VIEW_POSITION: position, VIEW_STATE: self.state(topic)}

    def problems(self) -> list[str]:
        """A sentence for each view that is not filled and should be."""
        return [f"view {self._name(number)} is not filled: {reason}" for number, reason in self._halted.items()]

    def warnings(self) -> list[str]:
        """A sentence for each view that had to skip something of late."""
        now_ms = self._clock.wall_ms()
        late: dict[str, int] = {}
        for partition, updater in self._updaters.items():
            if updater.skipped_ms is not None and now_ms - updater.skipped_ms < SKIP_WARNING_MS:
                late[partition.topic.name] = self._counters[partition.topic.number].skipped
        return [
            f"view {name} has skipped {count} offsets that its source removed first" for name, count in late.items()
        ]


def _start(source: Partition, view: Definition) -> int:
    """Where a view begins in a partition of its source."""
    if source.is_remote():
        return FROM_END if view.from_latest else 0
    return source.next_offset if view.from_latest else source.start_offset
