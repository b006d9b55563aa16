"""What defines a view: configurations of its topic, which are set when it is created and never change.

    halfmoon.view.source       the topic that it is filled from
    halfmoon.view.<language>   the filter, in that language: exactly one
    halfmoon.view.from         earliest (the default) or latest

Two more are only shown: `halfmoon.view.state` and `halfmoon.view.position`. Every Kafka tool can write and read all of
them, since they are configurations like others.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from halfmoon.errors import BrokerError, Fault

VIEW_PREFIX = "halfmoon.view."
VIEW_SOURCE = "halfmoon.view.source"
VIEW_FROM = "halfmoon.view.from"
VIEW_STATE = "halfmoon.view.state"
VIEW_POSITION = "halfmoon.view.position"
VIEW_SHOWN = (VIEW_STATE, VIEW_POSITION)
"""Only shown, and no part of a definition: see `Views.state`, `Views.position`."""
EARLIEST, LATEST = "earliest", "latest"

ALIASES = {"sql": "sql92"}
"""Short names of filter languages, in definitions of views."""


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


def view_configs(overrides: Mapping[str, str]) -> dict[str, str]:
    """Those of the overrides that define a view; empty where the topic is none."""
    return {name: value for name, value in overrides.items() if name.startswith(VIEW_PREFIX)}


def definition(configs: Mapping[str, str]) -> Definition | None:
    """The view that these configurations define, if any. They have passed `TopicConfigs.validate`.

    Raises BrokerError(INVALID_CONFIG) where the definition is not complete, or is more than one.
    """
    given = view_configs(configs)
    if not given:
        return None
    source = given.pop(VIEW_SOURCE, "").strip()
    begin = given.pop(VIEW_FROM, EARLIEST).strip()
    if not source:
        raise invalid(f"a view needs {VIEW_SOURCE}, the topic that it is filled from")
    if len(given) != 1:
        said = f"not {' and '.join(sorted(given))}" if given else f"such as {VIEW_PREFIX}tag"
        raise invalid(f"a view needs one filter, {said}")
    ((config, expression),) = given.items()
    return Definition(source, config, expression, begin == LATEST)


def source_of(configs: Mapping[str, str]) -> str | None:
    """The topic that a topic with these configurations is to be filled from, also where the rest is wrong."""
    return configs.get(VIEW_SOURCE, "").strip() or None


def invalid(reason: str) -> BrokerError:
    return BrokerError(Fault.INVALID_CONFIG, reason)
