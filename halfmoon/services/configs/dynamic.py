"""What was set for this node at run time: changing it, and what follows from it.

A change is one control record, and the settings are replaced as a whole (`Live.replace`): who keeps something made from
them has subscribed. What is set is left out, with a warning, where it makes no sense beside what broker.yaml says
today, or is not taken any more: a start must not depend on it, since nobody could take it back then. What would keep
everybody out is refused; and a start may `unset` anything by name.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

import msgspec

from halfmoon.config.settings import Settings
from halfmoon.config.topic_configs import check_lags
from halfmoon.core.append_types import ControlLog
from halfmoon.core.features import Feature
from halfmoon.core.live import Live
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.configs.group_configs import GroupConfigs
from halfmoon.services.configs.state import ALL_NODES, BROKER, ConfigsState


class DynamicConfigs:
    """Of one node."""

    def __init__(
        self,
        state: ConfigsState,
        appender: ControlLog,
        settings: Live[Settings],
        table: BrokerConfigs,
        groups: GroupConfigs,
        logger: logging.Logger,
    ) -> None:
        """`settings`: as broker.yaml, flags and environment say, so far."""
        self._state = state
        self._appender = appender
        self._settings = settings
        self.table = table
        self._groups = groups
        self._logger = logger
        self.base = settings.current
        """What broker.yaml, flags and environment say."""
        self.left_out: dict[str, str] = {}
        """What is set and cannot hold beside that, with the reason."""

    @property
    def node(self) -> str:
        """The name under which this node's own configurations are kept: its id."""
        return str(self.base.node.id)

    def feature(self) -> Feature:
        return Feature("configs", warnings=lambda: [*self.warnings(), *self._groups.warnings()])

    def opened(self, unset: Collection[str] = ()) -> None:
        """The log is recovered: make true what it says, but for what is to be `unset`. Raises BrokerError."""
        self.base = self._settings.current  # it says now which node this is
        self.unset(unset)
        self.apply()
        for warning in self.warnings() + self._groups.warnings():
            self._logger.warning("event=config_left_out reason=%s", warning)

    def topic_defaults(self) -> Mapping[str, str]:
        """By the topics' own names, what is set at run time for topics that do not say."""
        return self._state.topic_defaults()

    def overrides(self, name: str) -> dict[str, str]:
        """What is set for the node of that id, or for all nodes (ALL_NODES)."""
        return self._state.overrides(BROKER, name)

    def alter(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> int:
        """Replace all that is set for the node of that id, or for all nodes, but for what belongs to features that are
        off; returns the log position to wait for.

        Raises BrokerError.
        """
        hidden = self.table.hidden(self.overrides(name))
        given = {key: value for key, value in overrides.items() if hidden.get(key) != value}
        self.table.validate(given)
        overrides = hidden | given
        other = self.overrides(self.node if name == ALL_NODES else ALL_NODES)
        layers = {**overrides, **other} if name == ALL_NODES else {**other, **overrides}
        self.table.changed(self.base, layers)
        self._check_topics(layers)
        self._check_groups(layers)
        if validate_only:
            return 0
        position = self._appender.append_control(ResourceConfigsSet(BROKER, name, overrides))
        self.apply()
        return position

    def apply(self) -> None:
        """Make true what the log says: after a change, and once at start."""
        settings, self.left_out = self.table.as_far_as_possible(self.base, self._state.node_overrides())
        self._settings.replace(settings)

    def rebase(self, base: Settings) -> None:
        """broker.yaml, flags and environment say something else than before."""
        self.base = msgspec.structs.replace(base, node=self.base.node)  # its id may come from the data directory
        self._groups.rebase(base)
        self.apply()

    def unset(self, names: Collection[str]) -> None:
        """Remove what was set under these names, for this node and for all. For a start that is to let in again who was
        locked out; topics' defaults are kept unless they are named, since data may depend on them."""
        for layer in (ALL_NODES, self.node):
            known = self.overrides(layer)
            kept = {name: value for name, value in known.items() if name not in names}
            if kept != known:
                self._appender.append_control(ResourceConfigsSet(BROKER, layer, kept))
                gone = " ".join(f"{name}={value}" for name, value in known.items() if name in names)
                self._logger.warning("event=configs_unset configs=%s", gone)

    def warnings(self) -> list[str]:
        """A sentence for everything that is set at run time and does not hold."""
        return [
            f"broker config {name}={value}, which was set at run time, is ignored: {self.left_out[name]}"
            for name, value in self._state.node_overrides().items()
            if name in self.left_out
        ]

    def _check_topics(self, layers: Mapping[str, str]) -> None:
        """Defaults of topics must make sense beside each other."""
        rows = self.table.topics.rows
        if "min.compaction.lag.ms" not in rows:  # the cleaner is off
            return
        least, most = (
            layers.get(row.node_name, row.default(self.base))
            for row in (rows["min.compaction.lag.ms"], rows["max.compaction.lag.ms"])
        )
        check_lags(least, most)

    def _check_groups(self, layers: Mapping[str, str]) -> None:
        """Groups' own configurations must still make sense beside the new defaults."""
        defaults = {row.name: layers[row.node_name] for row in self._groups.rows.values() if row.node_name in layers}
        if defaults != self._groups.node_defaults():
            self._groups.check({}, defaults)
            for contradiction in self._groups.contradictions(defaults):
                raise BrokerError(Fault.INVALID_CONFIG, contradiction)
