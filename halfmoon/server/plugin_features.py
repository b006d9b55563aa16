"""Features that plugins give: asked for once the log is recovered, before anything moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from halfmoon.core.features import Feature
from halfmoon.errors import HalfmoonError, StartError
from halfmoon.hooks.features import FeatureContext

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.kernel import Kernel
    from halfmoon.hooks.plugins import Plugins


class NodeTopics:
    """halfmoon.hooks.features.Topics."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def get(self, name: str) -> Topic | None:
        return self._kernel.catalog.topic(name)

    def all(self) -> Sequence[Topic]:
        return self._kernel.catalog.topics()

    def create(self, name: str, partitions: int = -1, configs: Mapping[str, str] | None = None) -> Topic:
        topic, _ = self._kernel.administration.create_topic(name, partitions, configs)
        return topic

    def first_partition(self, name: str) -> Partition:
        return self._kernel.administration.first_partition(name)


def features_of(plugins: Plugins, kernel: Kernel) -> list[Feature]:
    """Raises StartError."""
    found: list[Feature] = []
    topics = NodeTopics(kernel)
    for late in plugins.features:
        context = FeatureContext(
            late.context, topics, kernel.appender, kernel.turn, kernel.partition_reader, kernel.relays, kernel.clock
        )
        name = late.context.name
        try:
            given = late.call(context)
        except HalfmoonError as error:
            raise StartError(f"plugin {name}: halfmoon_features: {error}") from error
        except Exception as error:
            raise StartError(f"plugin {name}: halfmoon_features: {type(error).__name__}: {error}") from error
        for feature in given:
            if not isinstance(feature, Feature):
                raise StartError(f"plugin {name}: halfmoon_features gave {feature!r}, expected a Feature")
            found.append(feature)
    return found
