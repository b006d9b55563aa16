"""What administrators store in RocketMQ's name server, by namespace and key: `mqadmin updateOrderConf` and the like.

They are kept and shown. The one namespace that RocketMQ itself reads is ORDER_TOPIC_CONFIG, the topics whose queues are
in order. Rules: KVConfigManager.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfmoon.core.append_types import ControlLog
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import ResourceConfigsSet
from halfmoon.services.configs.state import NAME_SERVER, ConfigsState

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""Topic → "broker:queues;broker:queues" (NamesrvUtil)."""
MOST_NAMESPACES = 100
MOST_KEYS = 10_000
MOST_CHARACTERS = 4_096
"""Of a namespace, a key or a value."""


class NameServerConfigs:
    def __init__(self, state: ConfigsState, appender: ControlLog) -> None:
        self._state = state
        self._appender = appender

    def values(self, namespace: str) -> Mapping[str, str]:
        """By key; none where nobody has stored any."""
        return self._state.overrides(NAME_SERVER, namespace)

    def put(self, namespace: str, key: str, value: str) -> int | None:
        """The log position to wait for; None where it is so already. Raises BrokerError(INVALID_REQUEST) over a
        limit."""
        values = self.values(namespace)
        if values.get(key) == value:
            return None
        for said in namespace, key, value:
            if len(said) > MOST_CHARACTERS:
                raise _over(f"{len(said)} characters: at most {MOST_CHARACTERS} are stored")
        if not values and len(self._state.names(NAME_SERVER)) >= MOST_NAMESPACES:
            raise _over(f"there are {MOST_NAMESPACES} namespaces, and there may be no more")
        if key not in values and len(values) >= MOST_KEYS:
            raise _over(f"namespace {namespace} has {MOST_KEYS} keys, and may have no more")
        return self._set(namespace, {**values, key: value})

    def delete(self, namespace: str, key: str) -> int | None:
        """The log position to wait for; None where there is nothing to delete."""
        values = self.values(namespace)
        if key not in values:
            return None
        return self._set(namespace, {each: value for each, value in values.items() if each != key})

    def _set(self, namespace: str, values: dict[str, str]) -> int:
        return self._appender.append_control(ResourceConfigsSet(NAME_SERVER, namespace, values))


def _over(why: str) -> BrokerError:
    return BrokerError(Fault.INVALID_REQUEST, why)
