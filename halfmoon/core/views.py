"""Filtered views: topics that the broker fills from other topics (B39).

A view is an ordinary topic, but for this: it is defined by a source and a filter expression, its partition i is
filled from partition i of the source (core/view_filler.py), it grows with the source, and nobody else appends to it.

The definition stands in the topic's configurations (`halfmoon.view.source`, `halfmoon.view.<language>`,
`halfmoon.view.from`), where every Kafka tool can write it when the topic is created and read it later; it cannot be
changed. What it is bound to is in the record that creates the topic: the source's number, which belongs to this
source alone and not to a later namesake, and the offset that each partition begins at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from halfmoon.core.errors import BrokerError, Fault
from halfmoon.core.filters import FilterCompiler, FilterSyntaxError, MessageFilter
from halfmoon.core.topic_configs import VIEW_FROM, VIEW_PREFIX, VIEW_SOURCE, validate, view_configs
from halfmoon.core.view_filler import ViewCounters, ViewFiller
from halfmoon.schema import control

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog.topics import Partition, Topic

ALIASES = {"sql": "sql92"}
"""Short names of filter languages, in definitions of views."""

SKIP_WARNING_MS = 3_600_000
"""For so long after a view had to skip something, health is yellow."""


class Definition(Struct, frozen=True):
    """What a view is, as its configurations say."""

    source: str
    config: str
    """The name of the configuration that the filter stands in."""
    expression: str
    from_latest: bool
    """Begins with what comes after its creation, not with what the source holds."""

    @property
    def language(self) -> str:
        name = self.config.removeprefix(VIEW_PREFIX)
        return ALIASES.get(name, name)


class ViewReading(Struct, frozen=True):
    """A view's numbers, for metrics."""

    name: str
    lag: int
    """Source offsets that are still to be looked at."""
    counters: ViewCounters


def definition(configs: Mapping[str, str]) -> Definition | None:
    """The view that these configurations define, if any. They have passed `topic_configs.validate`.

    Raises BrokerError(INVALID_CONFIG) where the definition is not complete, or is more than one.
    """
    given = view_configs(configs)
    if not given:
        return None
    source = given.pop(VIEW_SOURCE, "").strip()
    begin = given.pop(VIEW_FROM, "earliest").strip()
    if not source:
        raise _invalid(f"a view needs {VIEW_SOURCE}, the topic that it is filled from")
    if len(given) != 1:
        said = f"not {' and '.join(sorted(given))}" if given else f"such as {VIEW_PREFIX}tag"
        raise _invalid(f"a view needs one filter, {said}")
    ((config, expression),) = given.items()
    return Definition(source, config, expression, begin == "latest")


def _invalid(reason: str) -> BrokerError:
    return BrokerError(Fault.INVALID_CONFIG, reason)


class Views:
    """All views of a broker. Until `start` they are known, and not filled."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.languages: Mapping[str, FilterCompiler] = {}
        """Filter language → its compiler; plugins bring them. To be set before `start`."""
        self._fillers: dict[Partition, ViewFiller] = {}
        self.followers: dict[Partition, dict[Partition, None]] = {}
        """Partition of a source → the views' partitions that are filled from it."""
        self._counters: dict[int, ViewCounters] = {}
        """By topic number of the view."""
        self._halted: dict[int, str] = {}
        """Topic number of a view → why it is not filled."""
        self._started = False

    # -- definitions -------------------------------------------------------------------------------------------------

    def bind(self, configs: Mapping[str, str], partitions: int) -> tuple[control.Binding | None, int]:
        """For a topic that is to be created with these configurations: what it is bound to if it is a view, and its
        number of partitions (−1 asks for the source's).

        Raises BrokerError: INVALID_CONFIG for a definition that cannot be met, INVALID_PARTITIONS.
        """
        view = definition(configs)
        if view is None:
            return None, partitions
        source = self._broker.catalog.by_name.get(view.source)
        if source is None:
            raise _invalid(f"{VIEW_SOURCE}: there is no topic '{view.source}'")
        if source.internal:
            raise _invalid(f"{VIEW_SOURCE}: topic '{view.source}' is internal")
        self._compile(view)
        count = len(source.partitions)
        if partitions not in (-1, count):
            raise BrokerError(
                Fault.INVALID_PARTITIONS,
                f"a view has the partitions of its source; '{source.name}' has {count}, not {partitions}",
            )
        starts = [each.next_offset if view.from_latest else each.start_offset for each in source.partitions]
        return control.Binding(source.number, starts), count

    def check(self, configs: Mapping[str, str]) -> None:
        """Raises BrokerError(INVALID_CONFIG) unless these configurations define a view, whatever topics there are."""
        validate(configs)
        view = definition(configs)
        if view is None:
            raise _invalid(f"a view needs {VIEW_SOURCE}, the topic that it is filled from")
        self._compile(view)

    def _compile(self, view: Definition) -> MessageFilter:
        """Raises BrokerError(INVALID_CONFIG)."""
        compiler = self.languages.get(view.language)
        if compiler is None:
            known = ", ".join(sorted(self.languages)) or "none"
            raise _invalid(f"no plugin that is on offers the filter language '{view.language}' (there are: {known})")
        try:
            return compiler(view.expression)
        except FilterSyntaxError as error:
            raise _invalid(f"{view.config}: {error}") from None

    def check_deletion(self, topic: Topic) -> None:
        """Raises BrokerError(POLICY_VIOLATION) where views are still filled from the topic, unless it is forced."""
        views = self._broker.catalog.views.get(topic.number)
        if views and not topic.rules.delete_force:
            names = ", ".join(f"'{view.name}'" for view in views.values())
            raise BrokerError(
                Fault.POLICY_VIOLATION,
                f"topic '{topic.name}' is the source of {'views' if len(views) > 1 else 'the view'} {names}. To delete "
                "it all the same, and leave there what it has given, set halfmoon.delete.force=true on it",
            )

    def check_change(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Raises BrokerError(INVALID_CONFIG) where these configurations would define the topic anew."""
        if view_configs(configs) == view_configs(topic.configs):
            return
        if topic.view is None:
            raise _invalid(f"topic '{topic.name}' is no view, and a topic does not become one: create the view")
        raise _invalid(
            "the definition of a view never changes: create another one, and delete this one when it is not needed"
        )

    # -- filling -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to fill, wherever each view stopped."""
        self._started = True
        self.topics_changed()

    def topics_changed(self) -> None:
        """Topics were created, deleted or grown: fill what is new, forget what is gone."""
        catalog = self._broker.catalog
        if not self._started or not (catalog.views or self._fillers):
            return
        wanted: dict[Partition, Partition] = {}
        views = {number: view for siblings in catalog.views.values() for number, view in siblings.items()}
        for view in views.values():
            assert view.view is not None
            source = catalog.by_number.get(view.view.source_number)
            if source is not None:
                wanted.update(zip(view.partitions, source.partitions, strict=False))
        for partition in [partition for partition in self._fillers if partition not in wanted]:
            self._remove(partition)
        for number in set(self._counters) - set(views):
            del self._counters[number]
        for number in set(self._halted) - set(views):
            del self._halted[number]
        for partition, source_partition in wanted.items():
            if partition not in self._fillers:
                self._add(partition, source_partition)

    def _add(self, partition: Partition, source: Partition) -> None:
        broker, topic = self._broker, partition.topic
        if topic.number in self._halted:
            return
        try:
            view = definition(topic.configs)
            assert view is not None
            message_filter = self._compile(view)
        except BrokerError as error:
            self._halted[topic.number] = error.message
            broker.logger.error("event=view_halted view=%s reason=%s", topic.name, error.message)
            return
        counters = self._counters.setdefault(topic.number, ViewCounters())
        filler = self._fillers[partition] = ViewFiller(broker, partition, source, message_filter, counters)
        self.followers.setdefault(source, {})[partition] = None
        broker.relays.add(partition, filler)

    def _remove(self, partition: Partition) -> None:
        filler = self._fillers.pop(partition)
        followers = self.followers[filler.source]
        del followers[partition]
        if not followers:
            del self.followers[filler.source]
        self._broker.relays.remove(partition)

    def arrived(self, sources: Iterable[Partition]) -> None:
        """Messages became visible in these partitions."""
        wake = self._broker.relays.wake
        for source in sources:
            for partition in self.followers.get(source, ()):
                wake(partition)

    def save_progress(self) -> None:
        """Write down how far views have come where nothing matched since their last batch.

        Else a view that matches seldom would look again, after a restart, at all that it has passed since; and what has
        expired meanwhile would seem to be missing. Raises BrokerError.
        """
        moved = [
            (partition.topic.number, partition.index, filler.passed_offset)
            for partition, filler in self._fillers.items()
            if filler.passed_offset > partition.source_next
        ]
        if moved:
            self._broker.append_control(control.Relayed(moved))

    # -- how it goes -------------------------------------------------------------------------------------------------

    def readings(self) -> list[ViewReading]:
        """By view; halted ones too."""
        lags = dict.fromkeys(self._counters, 0)
        for partition, filler in self._fillers.items():
            lags[partition.topic.number] += filler.lag
        by_number = self._broker.catalog.by_number
        return [ViewReading(by_number[number].name, lag, self._counters[number]) for number, lag in lags.items()]

    def state(self, view: Topic) -> str:
        """In a few words: filled, or why not."""
        assert view.view is not None
        if view.view.source_number not in self._broker.catalog.by_number:
            return "its source was deleted"
        return self._halted.get(view.number, "filled")

    def position(self, view: Topic) -> list[tuple[int, int]]:
        """By partition (source offset, view offset): what matches before the one is in the view before the other.

        The view's offset may be ahead of what is visible there.
        """
        fillers = [(partition, self._fillers.get(partition)) for partition in view.partitions]
        return [
            (partition.source_next if filler is None else filler.passed_offset, partition.next_offset)
            for partition, filler in fillers
        ]

    def problems(self) -> list[str]:
        """A sentence for each view that is not filled and should be."""
        by_number = self._broker.catalog.by_number
        return [f"view {by_number[number].name} is not filled: {reason}" for number, reason in self._halted.items()]

    def warnings(self) -> list[str]:
        """A sentence for each view that had to skip something of late."""
        now_ms = self._broker.clock.wall_ms()
        late: dict[str, int] = {}
        for partition, filler in self._fillers.items():
            if filler.skipped_ms is not None and now_ms - filler.skipped_ms < SKIP_WARNING_MS:
                late[partition.topic.name] = self._counters[partition.topic.number].skipped
        return [f"view {name} has skipped {count} offsets that its source lost first" for name, count in late.items()]
