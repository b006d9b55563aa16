"""Which API is answered by which function, and what a handler is given.

A handler is a plain function: no event loop, no task, no socket. What takes time is said with a `Deferred`, which the
connection waits for; so handlers run in tests without a network, and answers leave in the order of the requests
whatever finishes first. One that may have thousands of elements to deal with is a generator function (`Api.sliced`,
docs/decisions/0128-requests-in-slices.md).

One module per API stands in `api/`, named after its key; `api/table.py` lists them all (`api.registered`). What
ApiVersions advertises is exactly what is listed there, but for an API of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from msgspec import Struct

from halfmoon.adapters.kafka.features import features
from halfmoon.adapters.tcp.access import Rights, Use, check
from halfmoon.adapters.tcp.core import Core
from halfmoon.auth.principals import Principal
from halfmoon.core.catalog.owners import OtherNode
from halfmoon.services.audit.lines import Who
from halfmoon.services.common.services import Services
from halfmoon.services.quotas.service import CONSUMED, Quotas


class Deferred:
    """An answer that comes later. `complete` may be called once, from the loop's thread.

    `hurry`, where it is set, asks for the answer at once, with what there is: a parked fetch must not make the requests
    behind it wait. It may be called when the answer is there already, and then does nothing.
    """

    __slots__ = ("_callback", "_change", "done", "hurry", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: object = None
        self.hurry: Callable[[], None] | None = None
        self._callback: Callable[[object], None] | None = None
        self._change: Callable[[object], object] | None = None

    def complete(self, value: object) -> None:
        assert not self.done, "a deferred answer completes once"
        self.done = True
        # Let go of everything: no garbage collection is to be needed for this, nor is the answer to stay for its sake.
        change, callback, self._change, self._callback = self._change, self._callback, None, None
        if change is not None:
            value = change(value)
        if callback is None:
            self.value = value
        else:
            callback(value)

    def abandon(self) -> None:
        """Nobody is there for the answer any more: let go of everything. It may still be completed."""
        self.hurry = self._callback = self._change = None

    def change(self, change: Callable[[object], object]) -> None:
        """Have the answer be what `change`, which must not raise, makes of it. Once, before the answer is there."""
        assert not self.done and self._change is None
        self._change = change

    def then(self, callback: Callable[[object], None]) -> None:
        """Call `callback` with the value: now if it is there, else when it comes."""
        if self.done:
            callback(self.value)
        else:
            self._callback = callback


class Close(Struct, frozen=True):
    """In place of an answer: close this connection, because the protocol has no other way to say `reason`."""

    reason: str


class Authentication(Protocol):
    """A client's, see `login.Authenticating`."""

    def told_versions(self) -> None: ...
    def handshake(self, version: int, mechanism: str) -> object: ...
    def authenticate(self, token: bytes) -> object: ...


class Peer(Protocol):
    """What a handler may know of the connection a request came on."""

    owner: object
    """Identifies the connection to the hold service."""
    host: str
    """The address the client reached us at, or the one configured to be advertised."""
    port: int
    peer_host: str
    software: str
    """What the client says it is (KIP-511); empty where it has not."""
    since_ms: int
    """When it connected, in monotonic milliseconds."""
    principal: Principal
    """Who it is."""
    mechanism: str
    """By which it has authenticated; empty: it has not."""
    token_id: str | None
    """Of the delegation token by which it has."""

    def who(self) -> Who:
        """As audit records it."""

    def address_of(self, node: OtherNode) -> tuple[str, int]:
        """Where this client reaches another node: at the listener that it came in at."""

    @property
    def login(self) -> Authentication | None:
        """How it shows who it is; None where it has not to."""

    @property
    def apis(self) -> ApiTable:
        """Those of plugins."""

    def in_thread(self, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """Run `work` off the loop; `then(result, error)` runs in the loop."""

    def load(self, size: int, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """The same for what reads so many bytes for an answer: once there is room for them."""

    def soon(self, work: Callable[[], object]) -> None:
        """Run `work` in the loop when others have had their turn."""

    def keep(self, part: memoryview) -> memoryview:
        """A part of the request, for one that goes on after its handler has returned: as it is, or a copy. No further
        request of the connection is handled before `go_on`, so that the order of requests stays what it was."""

    def go_on(self) -> None:
        """The request needs nothing any more that was kept for it, but for what the log has yet to write."""


class Context:
    """One request, as a handler sees it."""

    __slots__ = ("api_version", "client_id", "core", "correlation_id", "peer", "rights", "services")

    def __init__(
        self,
        core: Core,
        services: Services,
        peer: Peer,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        rights: Rights | None = None,
    ) -> None:
        """`rights`: what the client may do; None: everything."""
        self.core = core
        self.services = services
        self.peer = peer
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.rights = rights

    def check(self, operation: str, resource_type: str, resource: str) -> None:
        """Raises BrokerError where it is refused."""
        if self.rights is not None:
            check(self.rights, (operation, resource_type, resource))

    def allows(self, operation: str, resource_type: str, resource: str | None) -> bool:
        """`resource` None: whether it is allowed on any resource of the type."""
        return self.rights is None or self.rights.allows((operation, resource_type, resource))

    def allows_either(self, *uses: Use) -> bool:
        """As of Rights."""
        return self.rights is None or self.rights.allows_either(*uses)

    def demands(self, *uses: Use) -> bool:
        """As of Rights."""
        return self.rights is None or self.rights.demands(uses)

    def check_either(self, *uses: Use) -> None:
        """Raises BrokerError with the fault of the last where none of these is allowed."""
        if self.rights is not None:
            check(self.rights, *uses)

    def limit_fetch(self, request: Any) -> None:
        """Have a request for records ask for no more at once than its client may have after a rest."""
        quotas = self.services.find(Quotas)
        if quotas is not None and quotas.enabled:
            most = quotas.most_at_once(CONSUMED, self.client_id or "", self.peer.principal.name)
            request.max_bytes = int(min(request.max_bytes, most))
            request.min_bytes = min(request.min_bytes, request.max_bytes)

    def must_wait(self) -> bool:
        """Whether the client has had more than its quota of records allows it."""
        quotas = self.services.find(Quotas)
        return (
            quotas is not None
            and quotas.enabled
            and quotas.record(CONSUMED, self.client_id or "", 0, self.peer.principal.name) > 0
        )

    def after(
        self, position: int, response: object, on_error: Callable[[Exception], object], *, durable: bool = True
    ) -> Deferred:
        """Answer `response` once the log is durable up to `position`, else what `on_error` makes of the error. Not
        `durable`: once it is written up to there, which survives the death of this process."""
        deferred = Deferred()
        when = self.core.when_durable if durable else self.core.when_written
        when(position, lambda error: deferred.complete(response if error is None else on_error(error)))
        return deferred


Handler = Callable[[Context, Any], object]
"""What answers the requests of an API, see `Api`."""


class OnDemand:
    """The function `handle` of a module that is imported when it is first needed."""

    __slots__ = ("_handle", "module")

    def __init__(self, module: str) -> None:
        self.module = module
        self._handle: Handler | None = None

    def load(self) -> Handler:
        handle: Handler = import_module(self.module).handle
        self._handle = handle
        return handle

    @property
    def is_loaded(self) -> bool:
        return self._handle is not None

    def __call__(self, context: Context, request: Any) -> object:
        return (self._handle or self.load())(context, request)


class Api(Struct, frozen=True):
    """One registered API.

    A handler takes (context, request) and returns the response, a Deferred that completes with one, None where the
    protocol has no answer (acks=0), or Close. `raw` handlers take the request's body as a memoryview, which is valid
    only until they return unless the log keeps it, and answer with the response's body: bytes, or a list of buffers.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handler: Handler
    raw: bool
    own: bool
    """It is no API of Kafka's, and not advertised."""
    services: tuple[type[Any], ...] = ()
    """It is offered only where these services are on, …"""
    any_of: tuple[type[Any], ...] = ()
    """… and one of these, if there are any."""
    sliced: bool = False
    """The handler is a generator function: it yields wherever others may have their turn, and what it returns is what
    other handlers return. A large request of such an API is read in slices, and its answer written so. The state may
    be another after each `yield`."""
    flexible_since: int | None = None
    """Of a plugin's API: the first version whose headers end with tagged fields. Else kafka-python knows."""


class ApiTable:
    """The APIs that a listener offers, and what follows from them."""

    def __init__(self, by_key: Mapping[int, Api]) -> None:
        self.by_key = by_key
        self.features = tuple(features({key: each.max_version for key, each in by_key.items()}))
        self.answers: dict[tuple[int, int], bytes] = {}
        """ApiVersions' answers by version and error code, made when they are needed."""


def offered(apis: Mapping[int, Api], services: Services) -> dict[int, Api]:
    """Those whose services are on."""

    def is_offered(each: Api) -> bool:
        if each.any_of and all(services.find(kind) is None for kind in each.any_of):
            return False
        return all(services.find(kind) is not None for kind in each.services)

    return {key: each for key, each in apis.items() if is_offered(each)}
