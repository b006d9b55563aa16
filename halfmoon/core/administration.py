"""What administrators have set besides topics: configurations of nodes, groups, client metrics; quotas; access rules.

Part of the catalog: made up of control records, kept in every snapshot. What the values mean, and which are legal, is
said elsewhere (`broker_configs`, `group_configs`, `quotas`, `acls`); here they are only kept.

A node's configurations have two layers, as in Kafka: those of the node by its id, and below them those of all nodes,
under the name "". Both stand above broker.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from halfmoon.core import control
from halfmoon.core.control import AclRule
from halfmoon.core.topic_configs import TOPIC_CONFIGS

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

BROKER, GROUP, CLIENT_METRICS = "broker", "group", "client-metrics"
"""Kinds of resources, as control records name them."""

ALL_NODES = ""
"""The name under which the configurations of all nodes are kept."""

Entity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: (type, name) of its parts, sorted by type; None for the default of the type."""


class AdministrationState(msgspec.Struct, array_like=True):
    configs: list[tuple[str, str, dict[str, str]]]
    quotas: list[tuple[list[tuple[str, str | None]], dict[str, float]]]
    acls: list[AclRule]


class Administration:
    """Everything that `ResourceConfigsSet`, `QuotasSet` and `AclsChanged` have said so far."""

    def __init__(self) -> None:
        self.configs: dict[tuple[str, str], dict[str, str]] = {}
        """(kind, name) → overrides; never empty."""
        self.quotas: dict[Entity, dict[str, float]] = {}
        """Never empty inside."""
        self.acls: dict[AclRule, None] = {}
        """In the order in which they were made."""
        self._node: dict[str, str] = {}
        self._topics: dict[str, str] = {}

    def overrides(self, kind: str, name: str) -> dict[str, str]:
        """What a resource itself says."""
        return self.configs.get((kind, name), {})

    def names(self, kind: str) -> list[str]:
        """The resources of a kind that say anything, sorted."""
        return sorted(name for each, name in self.configs if each == kind)

    def node_overrides(self) -> Mapping[str, str]:
        """What is set for this node: for it by its id, which stands above what is set for all nodes.

        A data directory has one node, so whatever has a name is for it.
        """
        return self._node

    def topic_defaults(self) -> dict[str, str]:
        """By the topics' own names, what the node's configurations say for topics that do not."""
        return self._topics

    def _node_changed(self) -> None:
        """Work out once what every topic, and many a heartbeat, asks for."""
        node = dict(self.overrides(BROKER, ALL_NODES))
        for (kind, name), configs in self.configs.items():
            if kind == BROKER and name != ALL_NODES:
                node |= configs
        self._node = node
        self._topics = {
            row.name: node[row.node_name]
            for row in TOPIC_CONFIGS.values()
            if row.node_name in node and not row.read_only
        }

    def apply(self, record: control.ResourceConfigsSet | control.QuotasSet | control.AclsChanged) -> bool:
        """Make a record true; whether topics' rules may have changed by it."""
        if isinstance(record, control.ResourceConfigsSet):
            _keep(self.configs, (record.kind, record.name), record.configs)
            if record.kind != BROKER:
                return False
            before = self._topics
            self._node_changed()
            return self._topics != before
        if isinstance(record, control.QuotasSet):
            _keep(self.quotas, tuple(record.entity), record.quotas)
            return False
        for rule in record.removed:
            self.acls.pop(rule, None)
        self.acls.update(dict.fromkeys(record.added))
        return False

    def state(self) -> AdministrationState | None:
        """For a snapshot; None where nothing was ever set."""
        if not (self.configs or self.quotas or self.acls):
            return None
        return AdministrationState(
            [(kind, name, configs) for (kind, name), configs in self.configs.items()],
            [(list(entity), quotas) for entity, quotas in self.quotas.items()],
            list(self.acls),
        )

    def restore(self, state: AdministrationState | None) -> None:
        """Become what a snapshot says, in place of what was there."""
        kept = AdministrationState([], [], []) if state is None else state
        self.configs = {(kind, name): configs for kind, name, configs in kept.configs}
        self.quotas = {tuple(entity): quotas for entity, quotas in kept.quotas}
        self.acls = dict.fromkeys(kept.acls)
        self._node_changed()


def _keep(table: dict[KeyT, dict[str, ValueT]], key: KeyT, values: dict[str, ValueT]) -> None:
    if values:
        table[key] = values
    else:
        table.pop(key, None)
