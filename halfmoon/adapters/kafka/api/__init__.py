"""One module per Kafka API, named after its key: the listing of this folder is the list of what is supported.

Importing the package imports them all, and so registers their handlers.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from halfmoon.adapters.kafka.registry import APIS, Api

for _module in iter_modules(__path__):
    if _module.name.startswith("api_"):
        import_module(f"{__name__}.{_module.name}")


def registered() -> dict[int, Api]:
    """Every API, by key."""
    return APIS
