"""DER, as much of it as certificates need (X.690): the standard library shows certificates of peers only, and TLS is
not to need another library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INTEGER, OID, UTC_TIME, SEQUENCE, SET = 0x02, 0x06, 0x17, 0x30, 0x31
VERSION, EXTENSIONS = 0xA0, 0xA3
"""Of a certificate (RFC 5280, 4.1): fields that need not be there."""
_LENGTH_OCTETS = 4
"""The most that a length takes: no certificate has 4 GiB."""


class Element(NamedTuple):
    tag: int
    content: bytes
    raw: bytes
    """With its tag and length."""


def elements(encoded: bytes) -> Iterator[Element]:
    """What stands one after the other. Raises ValueError."""
    at = 0
    while at < len(encoded):
        begin = at
        tag, length = encoded[at], encoded[at + 1] if at + 1 < len(encoded) else 0x80
        at += 2
        if length >= 0x80:
            octets = length & 0x7F
            if not 1 <= octets <= _LENGTH_OCTETS or at + octets > len(encoded):
                raise ValueError("a length is malformed or cut off")
            length = int.from_bytes(encoded[at : at + octets])
            at += octets
        if at + length > len(encoded):
            raise ValueError("it is cut off")
        yield Element(tag, encoded[at : at + length], encoded[begin : at + length])
        at += length


def only(encoded: bytes, tag: int) -> bytes:
    """The content of the one element that this is. Raises ValueError."""
    found = list(elements(encoded))
    if len(found) != 1 or found[0].tag != tag:
        raise ValueError(f"expected one element with tag {tag:#04x}")
    return found[0].content


def certificate_fields(certificate: bytes) -> list[Element]:
    """Of a certificate, from its serial number on: serial number, signature, issuer, validity, subject, key, and what
    need not be there. Raises ValueError."""
    signed = next(elements(only(certificate, SEQUENCE)), None)
    if signed is None or signed.tag != SEQUENCE:
        raise ValueError("it holds no certificate")
    fields = list(elements(signed.content))
    if fields and fields[0].tag == VERSION:
        del fields[0]
    if len(fields) < 6 or fields[0].tag != INTEGER:
        raise ValueError("it has too few fields")
    return fields
