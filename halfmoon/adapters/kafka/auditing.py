"""Requests of which audit is told what they were allowed. What is refused it is told of each (`Rights.demands`).

Only their handlers are wrapped, so that Produce and Fetch are what they are unless everything is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.routes import Route
from halfmoon.adapters.tcp.access import Recorded, Use
from halfmoon.services.audit.service import Audit

CHANGES = frozenset(
    (
        3,  # Metadata makes topics
        19, 20, 21, 27, 30, 31, 33, 34, 37, 42, 43, 44, 45, 47, 49, 51, 57, 91, 92,
        18503,  # users
        18504,  # reload_tls
        18506,  # scheduled messages are cancelled and rescheduled
        18508,  # schedules
    )
)  # fmt: skip
"""APIs that change what is kept of topics, records, groups, users, rules and configurations. Delegation tokens' (38 to
40) tell by themselves (delegation.tell), as who made one needs no right. That an offset is committed is no change: it
is what consumers do all the time."""


def recorded(routes: dict[int, Route], audit: Audit) -> dict[int, Route]:
    """The routes, of which audit is told as much as it records."""
    if not audit.records_changes:
        return routes
    return {
        number: route.handled_by(partial(_recorded, route.name, audit, route.handler), sliced=route.sliced)
        if audit.records_all or route.key in CHANGES
        else route
        for number, route in routes.items()
    }


def _recorded(
    api: str, audit: Audit, handler: Callable[[Context, Any], object], ctx: Context, request: Any
) -> object:  # fmt: skip
    if ctx.rights is not None:
        peer = ctx.peer

        def allowed(uses: tuple[Use, ...]) -> None:
            if audit.records_all or not uses[-1][0].startswith("describe"):
                audit.allowed(peer.who(), peer.peer_host, api, uses)

        ctx.rights = Recorded(ctx.rights, allowed)
    return handler(ctx, request)
