"""Which function answers which (API key, version): the registry, laid out for one look-up per request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from halfmoon.adapters.kafka.protocol import is_flexible
from halfmoon.adapters.kafka.registry import Api, Context

API_VERSIONS = 18
FETCH = 1
PRODUCE = 0


class Route(Struct, frozen=True):
    """One version of one API."""

    key: int
    version: int
    name: str
    handler: Callable[[Context, Any], object]
    raw: bool
    flexible_request: bool
    """The request header ends with tagged fields."""
    flexible_response: bool
    """The response header does; never ApiVersions', because its reader cannot know yet (KIP-511)."""
    sliced: bool
    """It is worked at in slices, see `Api`."""
    keeps_body: bool
    """The log keeps slices of the request until its next write."""


def build_routes(apis: dict[int, Api]) -> dict[int, Route]:
    """Routes by `key << 16 | version`, which is how the first four bytes of a request read as one number."""
    routes = {}
    for api in apis.values():
        for version in range(api.min_version, api.max_version + 1):
            if api.flexible_since is not None:
                flexible = version >= api.flexible_since
            else:
                flexible = not api.own and is_flexible(api.key, version)
            routes[api.key << 16 | version] = Route(
                key=api.key,
                version=version,
                name=api.name,
                handler=api.handler,
                raw=api.raw,
                flexible_request=flexible,
                flexible_response=flexible and api.key != API_VERSIONS,
                sliced=api.sliced,
                keeps_body=api.key == PRODUCE,
            )
    return routes
