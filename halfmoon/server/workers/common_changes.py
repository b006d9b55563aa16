"""What follows from a change of the shared catalog that another process has made: here it is made true, too.

Who changes something of what all share makes it true in his own process; the others hear of it by its record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from halfmoon.core.catalog.section import CatalogSection
from halfmoon.schema import control
from halfmoon.services.configs.state import BROKER
from halfmoon.services.credentials.users import Change

if TYPE_CHECKING:
    from halfmoon.server.common import Common


class CommonChanges(CatalogSection):
    """A section that keeps nothing: it is registered behind those that do."""

    records: ClassVar = (control.ResourceConfigsSet, control.QuotasSet, control.UsersChanged, control.TokensChanged)

    def __init__(self) -> None:
        self._common: Common | None = None

    def bind(self, common: Common) -> None:
        """From now on."""
        self._common = common

    def apply(self, record: control.Record) -> None:
        common = self._common
        if common is None:
            return
        if isinstance(record, control.ResourceConfigsSet):
            if record.kind == BROKER:
                common.dynamic_configs.apply()
        elif isinstance(record, control.QuotasSet):
            common.quotas.restore()
        elif isinstance(record, control.UsersChanged):
            for name in record.removed:
                common.users.tell(name, Change.DELETED)
            for user in record.changed:
                common.users.tell(user.name, Change.DISABLED if user.disabled else Change.CREDENTIALS)
        elif isinstance(record, control.TokensChanged):
            common.tokens.changed_elsewhere(record.removed)

    def restoring(self) -> Callable[[], None]:
        """A snapshot is taken over, since this process has missed more changes than are kept; what is returned is
        called afterwards. What has become of each user is not known then, so all have to log in anew."""
        common = self._common
        if common is None:
            return _nothing
        users = {user.name for user in common.users.all()}
        tokens = common.tokens.ids()

        def restored() -> None:
            common.dynamic_configs.apply()
            common.quotas.restore()
            there = {user.name: user for user in common.users.all()}
            for name in sorted(users):
                user = there.get(name)
                if user is None:
                    common.users.tell(name, Change.DELETED)
                else:
                    common.users.tell(name, Change.DISABLED if user.disabled else Change.CREDENTIALS)
            common.tokens.changed_elsewhere(sorted(tokens - common.tokens.ids()))

        return restored


def _nothing() -> None: ...
