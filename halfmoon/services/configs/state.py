"""What administrators have set for nodes, groups, client metrics and RocketMQ's name server, as the log says it.

What the values mean, and which are legal, is said elsewhere in this folder; here they are only kept.

A node's configurations have two layers, as in Kafka: those of the node by its id, and below them those of all nodes,
under the name "". Both stand above broker.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec

from halfmoon.config.topic_configs import TopicConfigs
from halfmoon.core.catalog.section import CatalogSection
from halfmoon.schema import control

BROKER, GROUP, CLIENT_METRICS, NAME_SERVER = "broker", "group", "client-metrics", "name-server"
"""Kinds of resources, as control records name them."""

ALL_NODES = ""
"""The name under which the configurations of all nodes are kept."""

_configs = msgspec.msgpack.Decoder(list[tuple[str, str, dict[str, str]]])


class ConfigsState(CatalogSection):
    slots: ClassVar = ("configs",)
    records: ClassVar = (control.ResourceConfigsSet,)

    def __init__(self, topic_configs: TopicConfigs) -> None:
        self._topic_configs = topic_configs
        self.configs: dict[tuple[str, str], dict[str, str]] = {}
        """(kind, name) → overrides; never empty."""
        self.on_topic_defaults: list[Callable[[], object]] = []
        """Called when the defaults of topics have changed by a record."""
        self.on_groups: list[Callable[[], object]] = []
        """Called when the configurations of groups have, set here or by another process."""
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

    def topic_defaults(self) -> Mapping[str, str]:
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
            for row in self._topic_configs.rows.values()
            if row.node_name in node and not row.read_only
        }

    def apply(self, record: control.Record) -> None:
        assert isinstance(record, control.ResourceConfigsSet)
        key = record.kind, record.name
        if record.configs:
            self.configs[key] = record.configs
        else:
            self.configs.pop(key, None)
        if record.kind == BROKER:
            before = self._topics
            self._node_changed()
            if self._topics != before:
                for changed in self.on_topic_defaults:
                    changed()
        elif record.kind == GROUP:
            self._groups_changed()

    def save(self, slot: str) -> object:
        return [(kind, name, configs) for (kind, name), configs in self.configs.items()]

    def restore(self, slot: str, saved: msgspec.Raw) -> None:
        self.configs = {(kind, name): configs for kind, name, configs in _configs.decode(saved)}
        self._node_changed()
        self._groups_changed()

    def _groups_changed(self) -> None:
        for changed in self.on_groups:
            changed()
