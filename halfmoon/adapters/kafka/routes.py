"""Which function answers which (API key, version): the registry, laid out for one look-up per request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from halfmoon.adapters.kafka.protocol import is_flexible
from halfmoon.adapters.kafka.registry import Api, Context
from halfmoon.adapters.tcp.counters import RequestMetrics

API_VERSIONS: Final = 18
FETCH: Final = 1
PRODUCE: Final = 0


class Route:
    """One version of one API."""

    __slots__ = (
        "flexible_request", "flexible_response", "handler", "keeps_body", "key", "metrics", "name", "raw", "sliced",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        key: int,
        version: int,
        name: str,
        handler: Callable[[Context, Any], object],
        metrics: RequestMetrics,
        *,
        raw: bool,
        flexible_request: bool,
        flexible_response: bool,
        sliced: bool,
        keeps_body: bool,
    ) -> None:
        """`flexible_request`: the request's header ends with tagged fields. `flexible_response`: the response's does;
        never ApiVersions', because its reader cannot know yet (KIP-511). `sliced`: it is worked at in slices, see
        `Api`. `keeps_body`: the log keeps slices of the request until its next write."""
        self.key = key
        self.version = version
        self.name = name
        self.handler = handler
        self.metrics = metrics
        self.raw = raw
        self.flexible_request = flexible_request
        self.flexible_response = flexible_response
        self.sliced = sliced
        self.keeps_body = keeps_body

    def handled_by(self, handler: Callable[[Context, Any], object], *, sliced: bool) -> Route:
        """The same, of another handler."""
        return Route(
            self.key, self.version, self.name, handler, self.metrics, raw=self.raw,
            flexible_request=self.flexible_request, flexible_response=self.flexible_response, sliced=sliced,
            keeps_body=self.keeps_body,
        )  # fmt: skip


def build_routes(apis: Mapping[int, Api], metrics: Mapping[int, RequestMetrics]) -> dict[int, Route]:
    """Routes by `key << 16 | version`, which is how the first four bytes of a request read as one number. `metrics`: by
    key, where requests are counted."""
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
                metrics=metrics[api.key],
                raw=api.raw,
                flexible_request=flexible,
                flexible_response=flexible and api.key != API_VERSIONS,
                sliced=api.sliced,
                keeps_body=api.key == PRODUCE,
            )
    return routes
