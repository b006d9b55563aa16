"""Features that plugins give: asked for once the log is recovered, before anything moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.core.features import Feature
from halfmoon.errors import HalfmoonError, StartError
from halfmoon.hooks.features import FeatureContext

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.kernel import Kernel
    from halfmoon.hooks.context import PluginContext
    from halfmoon.hooks.plugins import Plugins
    from halfmoon.server.assembly import Node, Sections
    from halfmoon.services.common.filters import FilterCompiler

SectionT = TypeVar("SectionT", bound=CatalogSection)


class NodeTopics:
    """halfmoon.hooks.features.Topics."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def get(self, name: str) -> Topic | None:
        return self._kernel.catalog.topic(name)

    def by_number(self, number: int) -> Topic | None:
        return self._kernel.catalog.by_number.get(number)

    def derived(self) -> Sequence[Topic]:
        return [topic for siblings in self._kernel.catalog.views.values() for topic in siblings.values()]

    def check_configs(self, configs: Mapping[str, str]) -> None:
        self._kernel.topic_configs.validate(configs)

    def all(self) -> Sequence[Topic]:
        return self._kernel.catalog.topics()

    def create(self, name: str, partitions: int = -1, configs: Mapping[str, str] | None = None) -> Topic:
        topic, _ = self._kernel.administration.create_topic(name, partitions, configs)
        return topic

    def internal_partition(self, name: str, configs: Mapping[str, str]) -> Partition:
        return self._kernel.administration.internal_partition(name, configs)

    def first_partition(self, name: str) -> Partition:
        return self._kernel.administration.first_partition(name)


class NodeState:
    """halfmoon.hooks.features.State."""

    def __init__(self, sections: Sections) -> None:
        self._by_type = {type(each): each for each in vars(sections).values()}

    def section(self, kind: type[SectionT]) -> SectionT:
        found = self._by_type[kind]
        assert isinstance(found, kind)
        return found


class NoKeyLookup:
    """halfmoon.hooks.features.KeyLookup of a node without a key index. Its `covers` would be true of any position."""

    def covers(self, position: int) -> bool:
        raise self._off()

    def find_key(self, topic_number: int, key: bytes) -> Callable[[], list[int]]:
        raise self._off()

    def _off(self) -> HalfmoonError:
        return HalfmoonError("keys cannot be looked up: services.keyindex is off")


def context_of(node: Node, plugin: PluginContext, filters: Mapping[str, FilterCompiler]) -> FeatureContext:
    """The node, as a feature of this plugin uses it. `filters`: languages that all plugins offer."""
    kernel = node.kernel
    keys = NoKeyLookup() if "keyindex" in node.off else node.key_index
    return FeatureContext(
        plugin, NodeTopics(kernel), kernel.appender, kernel.turn, kernel.partition_reader, kernel.relays, kernel.clock,
        filters, node.waiting, keys, kernel.partition_reader.frames, NodeState(node.state),
        None if "expiry" in node.off else node.expiry,
    )  # fmt: skip


def features_of(plugins: Plugins, node: Node) -> list[Feature]:
    """Raises StartError."""
    found: list[Feature] = []
    for late in plugins.features:
        name = late.context.name
        try:
            given = late.call(context_of(node, late.context, plugins.filters))
        except HalfmoonError as error:
            raise StartError(f"plugin {name}: halfmoon_features: {error}") from error
        except (Exception, SystemExit) as error:
            raise StartError(f"plugin {name}: halfmoon_features: {type(error).__name__}: {error}") from error
        for feature in given:
            if not isinstance(feature, Feature):
                raise StartError(f"plugin {name}: halfmoon_features gave {feature!r}, expected a Feature")
            ours = plugins.is_built_in(name)
            found.append(feature if ours else plugins.guard.given(name, "halfmoon_features", feature))
    return found
