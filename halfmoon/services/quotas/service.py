"""Client quotas: for whom they may be set, which one holds for a client, and how long it has to wait.

A quota is set for an *entity*: a user, a client id, both together, or the address of a client; each by name, or as the
default of those that have none of their own. Which of a client's quotas holds is decided for each key apart, the first
of these that is set (ClientQuotaManager):

    user and client id · user and default client id · user · default user and client id · default user and default
    client id · default user · client id · default client id

What was set for a user alone is shared by all clients of the user; everything else is each client id's own. Who has
not authenticated is the user ANONYMOUS.

Rates are measured as Kafka does (`rates`), and so is the time that a client has to wait: until its rate would be at the
quota again. The adapter tells the client, and stops reading from it meanwhile.

Nothing here costs anything while no quota is set: `enabled` is False then, and adapters ask for that first.

Rules: ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager, ConnectionQuotas,
ClientQuotaControlManager (KIP-13, KIP-124, KIP-546, KIP-599, KIP-612).
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isinf
from typing import NamedTuple, TypeVar

from halfmoon.config.settings import Settings
from halfmoon.core.append_types import ControlLog
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature
from halfmoon.core.live import Live
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import QuotasSet
from halfmoon.services.quotas import metrics
from halfmoon.services.quotas.elsewhere import Use, UsedElsewhere
from halfmoon.services.quotas.rates import Rate, TokenBucket
from halfmoon.services.quotas.state import Entity, QuotasState

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""Types of an entity's parts."""
ANONYMOUS = "ANONYMOUS"

PRODUCED, CONSUMED = "producer_byte_rate", "consumer_byte_rate"
REQUEST_TIME, MUTATIONS, CONNECTIONS = "request_percentage", "controller_mutation_rate", "connection_creation_rate"

_LONG_MAX, _INT_MAX = 2**63 - 1, 2**31 - 1
_MOST = {PRODUCED: _LONG_MAX, CONSUMED: _LONG_MAX, CONNECTIONS: _INT_MAX}
"""Whole numbers up to here; the others are any numbers."""
_OF_CLIENTS = (PRODUCED, CONSUMED, REQUEST_TIME, MUTATIONS)

IDLE_MS = 3_600_000
"""A meter that was not used for so long is removed (Kafka: 1 h)."""
MOST_METERS = 100_000
"""Clients choose their ids themselves. Where there would be more meters at a time, the one used longest ago goes."""
REMOVED_AT_ONCE = 100
"""So many go at most when one is added."""

_DEFAULT = ""
"""As a part of a key: the default. (No name is empty.) None as a part: there is no such part."""
_Key = tuple[str | None, str | None]
"""(user, client id)"""

MeterT = TypeVar("MeterT", Rate, TokenBucket)
Meters = OrderedDict[tuple[str, _Key], MeterT]
"""By key and client; the one used last is at the end."""


class Alteration(NamedTuple):
    """What is to become of an entity's quotas: by key, None removes."""

    entity: Sequence[tuple[str, str | None]]
    changes: Sequence[tuple[str, float | None]]


def check_alteration(alteration: Alteration) -> Entity:
    """The entity, sorted. Raises BrokerError(INVALID_REQUEST) for what cannot be set."""
    entity = _entity(alteration.entity)
    keys = (CONNECTIONS,) if entity[0][0] == IP else _OF_CLIENTS
    seen = set()
    for key, value in alteration.changes:
        if key in seen:
            raise BrokerError(Fault.INVALID_REQUEST, f"quota key {key} appears more than once")
        seen.add(key)
        if value is not None:
            _check_value(key, value, keys)
    return entity


def _entity(parts: Sequence[tuple[str, str | None]]) -> Entity:
    if not parts:
        raise BrokerError(Fault.INVALID_REQUEST, "invalid empty client quota entity")
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind in named:
            raise BrokerError(Fault.INVALID_REQUEST, f"invalid client quota entity: {kind} appears more than once")
        if kind not in (USER, CLIENT_ID, IP):
            raise BrokerError(Fault.INVALID_REQUEST, f"unhandled client quota entity type: {kind}")
        if name == "":
            raise BrokerError(Fault.INVALID_REQUEST, f"empty {kind} is not supported")
        named[kind] = name
    if IP in named:
        if len(named) > 1:
            raise BrokerError(Fault.INVALID_REQUEST, "an ip cannot be combined with a user or client-id")
        if named[IP] is not None:
            named[IP] = _address(str(named[IP]))
    return tuple(sorted(named.items()))


def _address(text: str) -> str:
    """Kafka resolves host names here; a name may mean another address tomorrow, so only addresses are taken."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise BrokerError(Fault.INVALID_REQUEST, f"{text} is not an IP address") from None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _check_value(key: str, value: float, keys: Sequence[str]) -> None:
    if key not in keys:
        raise BrokerError(Fault.INVALID_REQUEST, f"invalid quota key {key}; expected one of: {', '.join(keys)}")
    if not value > 0:
        raise BrokerError(Fault.INVALID_REQUEST, f"quota {key} must be greater than 0")
    if isinf(value):
        raise BrokerError(Fault.INVALID_REQUEST, f"quota {key} must be a finite number")
    most = _MOST.get(key)
    if most is not None:
        if value > most:
            raise BrokerError(Fault.INVALID_REQUEST, f"quota {key} is too large: at most {most}")
        if abs(value % 1.0) > 1e-6:
            raise BrokerError(Fault.INVALID_REQUEST, f"quota {key} cannot be fractional")


class Throttle(NamedTuple):
    """How long a client has to wait, and because of which quota."""

    ms: int
    key: str


class Quotas:
    """All quotas of a broker, and what its clients have used of them. Everything runs in the loop's thread.

    `state` has what the log says of quotas. Without `restore` none of them holds.
    """

    def __init__(self, state: QuotasState, appender: ControlLog, clock: Clock, settings: Live[Settings]) -> None:
        self._state = state
        self._appender = appender
        self._clock = clock
        self._settings = settings
        self.enabled = False
        """Whether any quota of clients (not of addresses) is set, or was since the start."""
        self.connections_limited = False
        """Whether any quota of addresses is set, or was since the start."""
        self.on_enabled: list[Callable[[], None]] = []
        """Called when one of the two becomes true."""
        self.throttled: Counter[str] = Counter()
        """Answers that told a client to wait (for addresses: connections closed), by key."""
        self.throttled_ms: Counter[str] = Counter()
        """For how long altogether."""
        self.elsewhere: UsedElsewhere | None = None
        """Where other processes share the quotas."""
        self._limits: dict[str, dict[_Key, float]] = {}
        self._addresses: dict[str, float] = {}
        self._rates: Meters[Rate] = OrderedDict()
        self._buckets: Meters[TokenBucket] = OrderedDict()

    # -- setting them ----------------------------------------------------------------------------------------------

    def alter(self, alteration: Alteration, *, validate_only: bool = False) -> int | None:
        """Change the quotas of an entity; the log position to wait for, None if nothing changes. Raises BrokerError."""
        entity = check_alteration(alteration)
        known = self._state.quotas.get(entity, {})
        changed = dict(known)
        for key, value in alteration.changes:
            if value is None:
                changed.pop(key, None)
            else:
                changed[key] = float(value)
        if validate_only or changed == known:
            return None
        position = self._appender.append_control(QuotasSet(list(entity), changed))
        self._set(entity, changed)
        return position

    def feature(self) -> Feature:
        return Feature(
            "quotas", restore=self.restore, families=metrics.FAMILIES, read_metrics=partial(metrics.read, self)
        )

    @property
    def configured(self) -> Mapping[Entity, Mapping[str, float]]:
        """All that is set, by whom it is for."""
        return self._state.quotas

    def restore(self) -> None:
        """Make true what the log says, at start."""
        self._limits, self._addresses = {}, {}
        for entity, quotas in self._state.quotas.items():
            self._set(entity, quotas)

    def _set(self, entity: Entity, quotas: Mapping[str, float]) -> None:
        """These are all the quotas of the entity."""
        parts = dict(entity)
        if IP in parts:
            address = parts[IP] or _DEFAULT
            self._addresses.pop(address, None)
            if CONNECTIONS in quotas:
                self._addresses[address] = quotas[CONNECTIONS]
        else:
            place = _part(parts, USER), _part(parts, CLIENT_ID)
            for key in _OF_CLIENTS:
                limits = self._limits.setdefault(key, {})
                limits.pop(place, None)
                if key in quotas:
                    limits[place] = quotas[key]
        before = self.enabled, self.connections_limited
        self.enabled = self.enabled or any(self._limits.values())
        self.connections_limited = self.connections_limited or bool(self._addresses)
        if (self.enabled, self.connections_limited) != before:
            for callback in self.on_enabled:
                callback()

    # -- using them ------------------------------------------------------------------------------------------------

    def limit(self, key: str, client_id: str, user: str = ANONYMOUS) -> tuple[float, _Key] | None:
        """The quota that holds for a client, and whose usage counts against it: (user, client id), None = of all."""
        limits = self._limits.get(key)
        if not limits:
            return None
        both, of_user, of_client = (user, client_id), (user, None), (None, client_id)
        for place, counted in (
            (both, both),
            ((user, _DEFAULT), both),
            (of_user, of_user),
            ((_DEFAULT, client_id), both),
            ((_DEFAULT, _DEFAULT), both),
            ((_DEFAULT, None), of_user),
            (of_client, of_client),
            ((None, _DEFAULT), of_client),
        ):
            if place in limits and (client_id or counted[1] is None):
                return self._own_part(key, limits[place], counted), counted
        return None

    def _own_part(self, key: str, bound: float, counted: _Key) -> float:
        """Of a quota that other processes share."""
        if self.elsewhere is None or key == REQUEST_TIME:  # of the time that one process has
            return bound
        return bound / self.elsewhere.parts((key, *counted), self._clock.mono_ms())

    def in_use(self, within_ms: int) -> list[Use]:
        """What was used of late, in the order of its last use."""
        since_ms = self._clock.mono_ms() - within_ms
        return [*_used_since(self._rates, since_ms), *_used_since(self._buckets, since_ms)]

    def record(self, key: str, client_id: str, value: float, user: str = ANONYMOUS) -> int:
        """A client has used `value` of a quota; how many ms it has to wait now."""
        found = self.limit(key, client_id, user)
        if found is None:
            return 0
        bound, counted = found
        now_ms = self._clock.mono_ms()
        rate = self._rate(key, counted)
        rate.record(value, now_ms)
        wait_ms = rate.throttle_ms(bound, now_ms)
        # Time is not to be caught up with: one slow request must not close the door for minutes.
        return min(wait_ms, self._settings.current.limits.quota_window_ms) if key == REQUEST_TIME else wait_ms

    def at_rest(self, key: str, client_id: str, user: str = ANONYMOUS) -> bool:
        """Whether nothing is known that a client has used of a quota."""
        found = self.limit(key, client_id, user)
        return found is None or self._rate(key, found[1]).per_second(self._clock.mono_ms()) <= 0

    def take_back(self, key: str, client_id: str, value: float, user: str = ANONYMOUS) -> None:
        """What was recorded did not happen after all."""
        found = self.limit(key, client_id, user)
        if found is not None:
            self._rate(key, found[1]).record(-value, self._clock.mono_ms())

    def most_at_once(self, key: str, client_id: str, user: str = ANONYMOUS) -> float:
        """More than this in one answer would make the client wait even if it had had nothing before."""
        found = self.limit(key, client_id, user)
        if found is None:
            return float("inf")
        limits = self._settings.current.limits
        return found[0] * max(limits.quota_windows - 1, 1) * limits.quota_window_ms / 1000

    def mutate(self, client_id: str, count: int, user: str = ANONYMOUS, *, strict: bool) -> int:
        """A client changes `count` partitions; how many ms it has to wait now.

        A strict client is refused while its bucket is in debt; one that does not know that refusal only waits.
        Raises BrokerError(THROTTLING_QUOTA_EXCEEDED).
        """
        found = self.limit(MUTATIONS, client_id, user)
        if found is None:
            return 0
        bound, counted = found
        bucket = self._bucket(counted)
        now_ms = self._clock.mono_ms()
        wait_ms = bucket.throttle_ms(bound, now_ms)
        if wait_ms and strict:
            raise ThrottledError(wait_ms)
        bucket.take(count, bound, now_ms)
        return 0 if strict else bucket.throttle_ms(bound, now_ms)

    def connect(self, address: str) -> int:
        """Somebody has connected from an address; how many ms it is too early for that."""
        bound = self._addresses.get(address, self._addresses.get(_DEFAULT))
        if bound is None:
            return 0
        now_ms = self._clock.mono_ms()
        bound = self._own_part(CONNECTIONS, bound, (None, address))
        rate = self._rate(CONNECTIONS, (None, address))
        rate.record(1, now_ms)
        wait_ms = rate.throttle_ms(bound, now_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return min(wait_ms, self._settings.current.limits.quota_window_ms)

    def count(self, throttle: Throttle) -> None:
        """An answer told a client to wait."""
        self.throttled[throttle.key] += 1
        self.throttled_ms[throttle.key] += throttle.ms

    def _rate(self, key: str, counted: _Key) -> Rate:
        rate = _used(self._rates, (key, counted))
        if rate is None:
            limits = self._settings.current.limits
            _make_room(self._rates, self._clock.mono_ms())
            rate = self._rates[key, counted] = Rate(limits.quota_windows, limits.quota_window_ms)
        return rate

    def _bucket(self, counted: _Key) -> TokenBucket:
        bucket = _used(self._buckets, (MUTATIONS, counted))
        if bucket is None:
            limits = self._settings.current.limits
            _make_room(self._buckets, self._clock.mono_ms())
            bucket = TokenBucket(limits.quota_windows * limits.quota_window_ms / 1000)
            self._buckets[MUTATIONS, counted] = bucket
        return bucket


class ThrottledError(BrokerError):
    """A change was refused because a quota is used up; `wait_ms` says for how long."""

    def __init__(self, wait_ms: int) -> None:
        super().__init__(Fault.THROTTLING_QUOTA_EXCEEDED)
        self.wait_ms = wait_ms


def _part(parts: Mapping[str, str | None], kind: str) -> str | None:
    """One part of a key."""
    return (parts[kind] or _DEFAULT) if kind in parts else None


def _used_since(meters: Meters[MeterT], since_ms: int) -> Iterator[Use]:
    for used, meter in reversed(meters.items()):
        if meter.idle_since_ms() < since_ms:
            return
        key, (user, client_id) = used
        yield key, user, client_id


def _used(meters: Meters[MeterT], key: tuple[str, _Key]) -> MeterT | None:
    meter = meters.get(key)
    if meter is not None:
        meters.move_to_end(key)
    return meter


def _make_room(meters: Meters[MeterT], now_ms: int) -> None:
    """Remove some that were idle for long, before another is added; and one more, if there are too many."""
    for _ in range(REMOVED_AT_ONCE):
        first = next(iter(meters.values()), None)
        if first is None or (now_ms - first.idle_since_ms() < IDLE_MS and len(meters) < MOST_METERS):
            return
        meters.popitem(last=False)
