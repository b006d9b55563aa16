"""What cannot do its work without which service: refused at start, in one line, rather than found out later."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from halfmoon.config.settings import ServiceSettings, Settings
from halfmoon.errors import StartError

NEEDS: Mapping[str, Sequence[str]] = {
    "services.share": ("groups",),
    "plugins.delay": ("waiting", "keyindex"),
    "plugins.retry": ("waiting",),
    "plugins.schedule": ("waiting",),
    "plugins.transaction": ("waiting",),
    "listeners.rocketmq": ("groups",),
}
"""What cannot do its work while one of these services is off."""


def check_needs(settings: Settings, plugins: Collection[str]) -> None:
    """`plugins`: names of those that are on. Raises StartError where one, a listener or a service needs a service that
    is off."""
    off = settings.services.off()
    on = {f"plugins.{name}" for name in plugins}
    on |= {f"services.{name}" for name in ServiceSettings.__struct_fields__ if name not in off}
    if settings.listeners.rocketmq is not None:
        on.add("listeners.rocketmq")
    for who, services in NEEDS.items():
        for service in services:
            if who in on and service in off:
                raise StartError(f"$.{who} needs services.{service}, which is off; switch both off, or neither")
