"""The hosts of an address of the database, one by one: the driver has one time-out for all of them, and begins with the
first each time, so a host that is switched off would take all of it."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit


class Host(NamedTuple):
    name: str
    """For people."""
    dsn: str
    """The whole address, with no other host in it."""


class Hosts:
    """The one that answered last stands first, those that did not stand last. Threads share it: each change is one
    assignment, and one that is lost costs a try."""

    def __init__(self, dsn: str) -> None:
        self.order = _each(dsn)

    def answered(self, host: Host) -> None:
        if self.order[0] != host:
            self.order = (host, *(each for each in self.order if each != host))

    def is_silent(self, host: Host) -> None:
        self.order = (*(each for each in self.order if each != host), host)


_HOST: Final = "host"
_PORT: Final = "port"


def _each(dsn: str) -> tuple[Host, ...]:
    """One, the address as it is, where nothing can be made of it: the driver says what is wrong."""
    whole = (Host("", dsn),)
    try:
        parts = urlsplit(dsn)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        return whole
    user, at, named = parts.netloc.partition("@") if "@" in parts.netloc else ("", "", parts.netloc)
    names = (named or query.get(_HOST, "")).split(",")
    ports = query[_PORT].split(",") if query.get(_PORT) else []
    if len(names) == 1 or len(ports) not in (0, 1, len(names)):
        return whole
    found = []
    for number, name in enumerate(names):
        more = dict(query)
        if not named:
            more[_HOST] = name
        if ports:
            more[_PORT] = ports[number if len(ports) > 1 else 0]
        netloc = f"{user}{at}{name}" if named else parts.netloc
        shown = f"{name}:{more[_PORT]}" if ports else name
        end = f"?{urlencode(more, quote_via=quote)}" if more else ""
        found.append(Host(shown, f"{parts.scheme}://{netloc}{parts.path}{end}"))
    return tuple(found)
