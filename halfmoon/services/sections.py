"""Every section of the catalog, in the order in which records are applied to them."""

from __future__ import annotations

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.services.acls.state import AclsState
from halfmoon.services.configs.state import ConfigsState
from halfmoon.services.delay.state import CancelsState
from halfmoon.services.groups.state import GroupsState
from halfmoon.services.quotas.state import QuotasState
from halfmoon.services.retry.state import NackedState
from halfmoon.services.share.state import ShareState
from halfmoon.services.transactions.state import TransactionsState
from halfmoon.services.waiting.state import AttemptsState


class Sections:
    """All of them, always: also those of features that are off."""

    def __init__(self, catalog: Catalog) -> None:
        self.groups = GroupsState(catalog)
        self.nacked = NackedState()
        self.groups.on_commit.append(self.nacked.committed)
        self.attempts = AttemptsState()
        self.cancels = CancelsState(catalog)
        self.transactions = TransactionsState(self.groups)
        self.configs = ConfigsState(catalog.topic_configs)
        self.quotas = QuotasState()
        self.acls = AclsState()
        self.share = ShareState(catalog)
        catalog.register(
            (
                self.transactions, self.groups, self.nacked, self.attempts, self.cancels, self.configs, self.quotas,
                self.acls, self.share,
            )
        )  # fmt: skip
        catalog.ends = self.transactions
        catalog.topic_defaults = self.configs.topic_defaults
        self.configs.on_topic_defaults = catalog.resolve_topics
