"""Who decides what clients may do: access rules and plugins, or plugins alone, or nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from halfmoon.adapters.tcp.access import Access, OpinionAccess, RuleAccess
from halfmoon.auth.principals import LOCAL_ADMIN, parse
from halfmoon.config.security_settings import authenticates
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.authorization import own_topics
from halfmoon.services.authorization.decisions import OPERATIONS, RESOURCE_TYPES
from halfmoon.services.authorization.service import Authorization, Authorizer
from halfmoon.services.security import Decide, Decided, SecurityAnswers

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.clock import Clock
    from halfmoon.hooks.plugins import Plugins
    from halfmoon.server.common import Common
    from halfmoon.server.plugin_host import Host
    from halfmoon.server.tls_files import TlsFiles

logger = logging.getLogger("halfmoon.auth")

HOOK = "halfmoon_authorize"


def access_of(
    common: Common,
    catalog: Catalog,
    clock: Clock,
    rights_changed: Callable[[], object],
    settings: Settings,
    plugins: Plugins,
    host: Host,
) -> Access | None:
    """None: everybody may do everything. `rights_changed` is told when somebody may do something else than before."""
    if settings.security.authorizes(settings.listeners):
        host.authorization = authorization_of(
            common, catalog, clock, rights_changed, settings, plugins, host.lifetimes_ms
        )
        return RuleAccess(host.authorization)
    records_changes = common.audit is not None and common.audit.records_changes
    if not plugins.authorizers and not records_changes:  # else it has to be said what requests are about
        return None
    return OpinionAccess(plugins.verdict, lambda: [topic.name for topic in catalog.topics() if not topic.hidden])


def authorization_of(
    common: Common,
    catalog: Catalog,
    clock: Clock,
    rights_changed: Callable[[], object],
    settings: Settings,
    plugins: Plugins,
    lifetimes_ms: Mapping[str, int],
) -> Authorization:
    """`lifetimes_ms`: how long verdicts of plugins may be kept. The others: as of `access_of`."""
    security, users, acls = settings.security, common.users, common.state.acls
    super_users = {*security.super_users, str(LOCAL_ADMIN)}

    def is_super_user(principal: str) -> bool:
        return principal in super_users or users.is_admin(parse(principal))

    scheduled = {name for each in plugins.interceptors for name in each.scheduled_topics}

    def least_prefix(name: str) -> int:
        """Topics of other plugins, too, in which messages wait. Kafka's own internal topics are as others, as there.
        What is said of a name never changes: answers are kept."""
        if name in scheduled:
            return own_topics.NO_PREFIX
        topic = catalog.topic(name)
        return own_topics.NO_PREFIX if topic is not None and topic.hidden else own_topics.least_prefix(name)

    def failed(plugin: str, error: Exception) -> None:
        plugins.errors.count(HOOK, plugin)
        logger.error("event=hook_failed hook=%s plugin=%s verdict=deny", HOOK, plugin, exc_info=error)

    authorization = Authorization(
        acls,
        is_super_user,
        least_prefix,
        allow_everyone=security.allow_everyone_if_no_acl_found,
        plugins=[Authorizer(each.plugin, each.call, lifetimes_ms.get(each.plugin, 0)) for each in plugins.authorizers],
        failed=failed,
        mono_ms=clock.mono_ms,
    )

    def user_changed(name: str, _change: object) -> None:
        authorization.forget()
        rights_changed()

    def rules_changed(_removed: object, _added: object) -> None:
        rights_changed()

    users.on_change.append(user_changed)
    acls.watchers.append(rules_changed)
    return authorization


def answers(access: Access | None, tls_files: TlsFiles) -> SecurityAnswers:
    """To `halfmoon acl check` and `halfmoon tls reload`."""

    def decide(asked: Decide) -> Decided:
        if asked.operation not in OPERATIONS or asked.resource_type not in RESOURCE_TYPES:
            raise BrokerError(Fault.INVALID_REQUEST, f"no operation {asked.operation} on {asked.resource_type}")
        if access is None:
            return Decided(True, "there is no authorizer: everybody may do everything")
        found = access.decide(asked.principal, asked.host, asked.operation, asked.resource_type, asked.name)
        return Decided(found.allowed, found.reason, found.rule)

    return SecurityAnswers(decide, tls_files.reload)


def warnings(settings: Settings) -> list[str]:
    """What is open, a sentence each."""
    if settings.security.authorizer == "none" and any(authenticates(settings.listeners)):
        return ["security.authorizer is none: clients authenticate, and each may do everything"]
    return []
