"""What administrators set for all: configurations, users, tokens, access rules, quotas; and who records it.

In a broker that is one process it is part of its node, and stands in its log. Where several processes share topics
each has one of these beside its shards, over the catalog that they share (docs/decisions/0164-shards.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from halfmoon.services.acls.service import AccessRules
from halfmoon.services.acls.state import AclsState
from halfmoon.services.audit.service import Audit
from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.configs.client_metrics import ClientMetrics
from halfmoon.services.configs.dynamic import DynamicConfigs
from halfmoon.services.configs.group_configs import GroupConfig, GroupConfigs
from halfmoon.services.configs.name_server import NameServerConfigs
from halfmoon.services.configs.state import ConfigsState
from halfmoon.services.credentials.node_key import NodeKey
from halfmoon.services.credentials.state import CredentialsState
from halfmoon.services.credentials.tokens import DelegationTokens, TokenLimits
from halfmoon.services.credentials.users import Users
from halfmoon.services.quotas.service import Quotas
from halfmoon.services.quotas.state import QuotasState

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings
    from halfmoon.config.topic_configs import TopicConfigs
    from halfmoon.core.append_types import ControlLog
    from halfmoon.core.clock import Clock
    from halfmoon.core.features import Feature
    from halfmoon.core.live import Live
    from halfmoon.core.storage.files import FileSystem
    from halfmoon.core.timers import Timers


class CommonSections:
    """What the log, or the shared catalog, says of it."""

    def __init__(self, topic_configs: TopicConfigs) -> None:
        self.configs = ConfigsState(topic_configs)
        self.quotas = QuotasState()
        self.acls = AclsState()
        self.credentials = CredentialsState()
        self.all = (self.configs, self.quotas, self.acls, self.credentials)


class Common:
    def __init__(
        self,
        state: CommonSections,
        log: ControlLog,
        live: Live[Settings],
        topic_configs: TopicConfigs,
        clock: Clock,
        timers: Timers,
        fs: FileSystem,
        random_bytes: Callable[[int], bytes],
        logger: logging.Logger,
        off: Collection[str],
        more_group_configs: Sequence[GroupConfig] = (),
    ) -> None:
        """`log`: where changes are written down. `fs`: of the data directory. `off`: names of features that are off.
        `more_group_configs`: those that plugins offer. Raises StartError."""
        self.state = state
        self._off = off
        settings = live.current
        self.group_configs = GroupConfigs(state.configs, log, live, off, more_group_configs)
        self.dynamic_configs = DynamicConfigs(
            state.configs, log, live, BrokerConfigs(topic_configs, off), self.group_configs, logger
        )
        self.client_metrics = ClientMetrics(state.configs, log)
        self.name_server_configs = NameServerConfigs(state.configs, log)
        self.quotas = Quotas(state.quotas, log, clock, live)
        security = settings.security
        self.acls = AccessRules(state.acls, log, obeyed=security.authorizes(settings.listeners))
        self.node_key = NodeKey(fs, random_bytes)
        self.users = Users(state.credentials, log, self.node_key, random_bytes, fs.exposed)
        tokens = security.tokens
        self.tokens = DelegationTokens(
            state.credentials, log, clock, timers, self.node_key, random_bytes, self.users.is_disabled,
            TokenLimits(tokens.enable, tokens.lifetime_ms, tokens.renew_ms), logger,
        )  # fmt: skip
        self.audit = Audit(security.audit.level, clock) if security.audits(settings.listeners) else None
        """None where nothing is recorded."""

    def features(self) -> Sequence[Feature]:
        return (
            self.dynamic_configs.feature(), self.quotas.feature(), self.users.feature(), self.tokens.feature()
        )  # fmt: skip

    def services(self) -> Iterator[tuple[str, tuple[object, ...]]]:
        """By the names of features, what requests are answered with."""
        yield "configs", (self.group_configs, self.dynamic_configs, self.client_metrics, self.name_server_configs)
        yield "quotas", (self.quotas,)
        yield "acls", (self.acls,)
        yield "credentials", (self.users, self.tokens)
        if self.audit is not None:
            yield "audit", (self.audit,)
