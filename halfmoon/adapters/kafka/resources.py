"""Resources whose configurations can be described and altered, by their type: topics, nodes, groups, client metrics.

What each API does is the same for all of them; here is what differs: which names are legal, what a resource says
already, what is legal in it, how a change is written down, and how it is shown. Loggers are not among them: their
levels are not kept (`loggers`).

Rules: ConfigAdminManager, ControllerConfigurationValidator, ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from halfmoon.adapters.kafka.config_entries import (
    Entry,
    all_nodes_entries,
    client_metrics_entries,
    group_entries,
    node_entries,
    shown_entries,
    topic_entries,
)
from halfmoon.adapters.kafka.lookup import topic_named
from halfmoon.adapters.kafka.registry import Context
from halfmoon.config import topic_configs
from halfmoon.config.values import Kind
from halfmoon.core.topic_names import check_topic_name
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.configs import client_metrics, group_configs
from halfmoon.services.configs.client_metrics import ClientMetrics
from halfmoon.services.configs.dynamic import DynamicConfigs
from halfmoon.services.configs.group_configs import GroupConfigs
from halfmoon.services.configs.state import ALL_NODES

TOPIC_TYPE, BROKER_TYPE, BROKER_LOGGER_TYPE, CLIENT_METRICS_TYPE, GROUP_TYPE = 2, 4, 8, 16, 32
"""org.apache.kafka.common.config.ConfigResource.Type"""


class Resource:
    """One resource that a request names. Methods raise BrokerError."""

    TYPE: ClassVar[int]

    def __init__(self, ctx: Context, name: str) -> None:
        self.ctx = ctx
        self.core = ctx.core
        self.name = name

    def check_name(self) -> None:
        """Refuse a name that no such resource may have."""
        raise NotImplementedError

    def overrides(self) -> dict[str, str]:
        """What it says now."""
        raise NotImplementedError

    def kept(self) -> dict[str, str]:
        """What of that is not replaced when all is."""
        return {}

    def kind(self, name: str) -> Kind:
        """The type of a configuration's value. Raises BrokerError where there is no such configuration."""
        raise NotImplementedError

    def never_set(self, name: str) -> bool:
        """Whether it is a configuration of Kafka's that is refused here. Deleting it changes nothing, and Kafka's tools
        do so to be sure."""
        return False

    def default(self, name: str) -> str:
        """What holds where the resource does not say."""
        raise NotImplementedError

    def alter(self, overrides: Mapping[str, str], *, validate_only: bool) -> int:
        """Replace all that it says; returns the log position to wait for."""
        raise NotImplementedError

    def entries(self) -> list[Entry]:
        """How it is described."""
        raise NotImplementedError


class TopicResource(Resource):
    TYPE = TOPIC_TYPE

    def check_name(self) -> None:
        if not self.name:
            raise BrokerError(Fault.INVALID_REQUEST, "default topic resources are not allowed")
        check_topic_name(self.name)

    def overrides(self) -> dict[str, str]:
        topic = self.core.catalog.topic(self.name)
        return {} if topic is None else dict(topic.configs)

    def kept(self) -> dict[str, str]:
        return self.core.topic_configs.fixed(self.overrides())

    def kind(self, name: str) -> Kind:
        return self.core.topic_configs.find(name).kind

    def never_set(self, name: str) -> bool:
        return topic_configs.known_elsewhere(name)

    def default(self, name: str) -> str:
        node = self.ctx.services.get(DynamicConfigs).topic_defaults()
        return node.get(name) or self.core.topic_configs.find(name).default(self.core.settings)

    def alter(self, overrides: Mapping[str, str], *, validate_only: bool) -> int:
        # So that a wrong configuration is named before a missing topic, as in Kafka.
        self.core.topic_configs.validate(overrides, self.overrides())
        return self.core.administration.alter_configs(
            topic_named(self.core, self.name), overrides, validate_only=validate_only
        )

    def entries(self) -> list[Entry]:
        check_topic_name(self.name)
        topic = topic_named(self.core, self.name)
        return topic_entries(self.ctx, topic.configs) + shown_entries(self.ctx, topic)


class NodeResource(Resource):
    """This node by its id, or all nodes (the name ""): what each says stands above broker.yaml."""

    TYPE = BROKER_TYPE

    def check_name(self) -> None:
        if self.name not in (ALL_NODES, str(self.core.node_id)):
            raise BrokerError(
                Fault.INVALID_REQUEST,
                f"unexpected broker id: expected {self.core.node_id} or nothing, received {self.name}",
            )

    def overrides(self) -> dict[str, str]:
        return dict(self.ctx.services.get(DynamicConfigs).overrides(self.name))

    def kept(self) -> dict[str, str]:
        return self.ctx.services.get(DynamicConfigs).table.hidden(self.overrides())

    def kind(self, name: str) -> Kind:
        return self.ctx.services.get(DynamicConfigs).table.find(name).kind

    def never_set(self, name: str) -> bool:
        return self.ctx.services.get(DynamicConfigs).table.known_elsewhere(name)

    def default(self, name: str) -> str:
        dynamic = self.ctx.services.get(DynamicConfigs)
        below = dynamic.overrides(ALL_NODES) if self.name != ALL_NODES else {}
        return below.get(name) or dynamic.table.find(name).value(dynamic.base)

    def alter(self, overrides: Mapping[str, str], *, validate_only: bool) -> int:
        return self.ctx.services.get(DynamicConfigs).alter(self.name, overrides, validate_only=validate_only)

    def entries(self) -> list[Entry]:
        self.check_name()
        if self.name == ALL_NODES:
            return all_nodes_entries(self.ctx)
        return node_entries(self.ctx, self.ctx.peer.host, self.ctx.peer.port)


class GroupResource(Resource):
    """A group, whether it exists or not."""

    TYPE = GROUP_TYPE

    def check_name(self) -> None:
        if not self.name:
            raise BrokerError(Fault.INVALID_REQUEST, "the group name must not be empty")

    @property
    def _groups(self) -> GroupConfigs:
        return self.ctx.services.get(GroupConfigs)

    def overrides(self) -> dict[str, str]:
        return dict(self._groups.overrides(self.name))

    def kept(self) -> dict[str, str]:
        return self._groups.hidden(self.name)

    def kind(self, name: str) -> Kind:
        return self._groups.find(name).kind

    def never_set(self, name: str) -> bool:
        return name in group_configs.NOT_HERE

    def default(self, name: str) -> str:
        base = self.ctx.services.get(DynamicConfigs).base
        return self._groups.node_defaults().get(name) or self._groups.find(name).default(base, self.name)

    def alter(self, overrides: Mapping[str, str], *, validate_only: bool) -> int:
        if validate_only:
            self._groups.validate(overrides)
            return 0
        return self._groups.alter(self.name, overrides)

    def entries(self) -> list[Entry]:
        self.check_name()
        return group_entries(self.ctx, self.name)


class ClientMetricsResource(Resource):
    TYPE = CLIENT_METRICS_TYPE

    def check_name(self) -> None:
        if not self.name:
            raise BrokerError(Fault.INVALID_REQUEST, "the name of a client metrics subscription must not be empty")

    def overrides(self) -> dict[str, str]:
        return dict(self.ctx.services.get(ClientMetrics).overrides(self.name))

    def kind(self, name: str) -> Kind:
        client_metrics.validate(
            {name: self.default(name)} if name in client_metrics.CLIENT_METRICS_CONFIGS else {name: ""}
        )
        return client_metrics.CLIENT_METRICS_CONFIGS[name].kind

    def default(self, name: str) -> str:
        return client_metrics.CLIENT_METRICS_CONFIGS[name].default

    def alter(self, overrides: Mapping[str, str], *, validate_only: bool) -> int:
        if validate_only:
            client_metrics.validate(overrides)
            return 0
        return self.ctx.services.get(ClientMetrics).alter(self.name, overrides)

    def entries(self) -> list[Entry]:
        self.check_name()
        return client_metrics_entries(self.overrides())


_TYPES: dict[int, type[Resource]] = {
    each.TYPE: each for each in (TopicResource, NodeResource, GroupResource, ClientMetricsResource)
}


def resource(ctx: Context, kind: int, name: str) -> Resource:
    """The resource that a request names. Raises BrokerError(INVALID_REQUEST) for a type that there is not."""
    found = _TYPES.get(kind)
    if found is None:
        raise BrokerError(Fault.INVALID_REQUEST, f"unknown resource type {kind}")
    return found(ctx, name)
