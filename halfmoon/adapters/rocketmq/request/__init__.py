"""One module per request, named after its code. Importing this package registers them all."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from halfmoon.adapters.rocketmq.registry import REQUESTS, Request

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def registered() -> dict[int, Request]:
    """Every request, by code."""
    return REQUESTS
