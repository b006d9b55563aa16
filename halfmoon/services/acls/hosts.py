"""Hosts as access rules write them: an address, or a network such as 10.0.0.0/8; never a name.

An address of IPv6 has many spellings: Java writes 0:0:0:0:0:0:0:1 where sockets say ::1, and a listener for both
families gives clients with IPv4 addresses as ::ffff:10.0.0.1. So a rule for such an address is one for a network of one
address.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Network = tuple[int, int, int]
"""Version of the protocol, length of the prefix, and the prefix as a number."""

_BITS = {4: 32, 6: 128}


def canonical(host: str) -> str:
    """The one spelling of an address; anything else as it is."""
    address = _address(host) if ":" in host else None
    return host if address is None else str(address)


def network(host: str) -> Network | None:
    """The network that a rule means; None where it means an address that is spelled in one way, or nothing. Raises
    ValueError where a text with a slash is no network, or has bits set behind its prefix."""
    if "/" in host:
        found = ip_network(host)
        bits = _BITS[found.version] - found.prefixlen
        return found.version, found.prefixlen, int(found.network_address) >> bits
    address = _address(host) if ":" in host else None
    return None if address is None else (address.version, _BITS[address.version], int(address))


def networks_around(host: str, lengths: set[tuple[int, int]]) -> list[Network]:
    """The networks an address is in, among those with these versions and lengths of the prefix."""
    address = _address(host)
    if address is None:
        return []
    number, version = int(address), address.version
    return [(version, length, number >> (_BITS[version] - length)) for of, length in lengths if of == version]


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if address.version == 6 else address
