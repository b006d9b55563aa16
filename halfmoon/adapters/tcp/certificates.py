"""What is read of an X.509 certificate by hand: the standard library shows those of peers only, and TLS is not to need
another library. DER: X.690; the layout of a certificate: RFC 5280, 4.1."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address

UTC_TIME, VERSION, EXTENSIONS = 0x17, 0xA0, 0xA3
DNS_NAME, IP_ADDRESS = 0x82, 0x87
_SUBJECT_ALT_NAME = bytes.fromhex("551d11")
"""2.5.29.17 (RFC 5280, 4.2.1.6)."""


def elements(content: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Tag and content of each element that stands in `content`. Raises ValueError."""
    at = 0
    try:
        while at < len(content):
            tag, length = content[at], content[at + 1]
            at += 2
            if length & 0x80:
                octets = length & 0x7F
                length = int.from_bytes(content[at : at + octets])
                at += octets
            if at + length > len(content):
                raise IndexError
            yield tag, content[at : at + length]
            at += length
    except IndexError:
        raise ValueError("it is cut off") from None


def alternative_names(certificate: bytes) -> list[str]:
    """The host names and addresses that a DER certificate is for. Raises ValueError."""
    try:
        ((_, whole),) = elements(memoryview(certificate))
        _, signed = next(elements(whole))
        found: list[str] = []
        for tag, content in elements(signed):
            if tag == EXTENSIONS:
                ((_, extensions),) = elements(content)
                for _, extension in elements(extensions):
                    (_, oid), *_, (_, value) = elements(extension)
                    if oid == _SUBJECT_ALT_NAME:
                        found += _names(value)
    except (StopIteration, ValueError) as error:
        raise ValueError(f"this is no X.509 certificate: {error}") from None
    return found


def _names(encoded: memoryview) -> Iterator[str]:
    """Raises ValueError."""
    ((_, names),) = elements(encoded)
    for tag, content in elements(names):
        if tag == DNS_NAME:
            yield bytes(content).decode("ascii", "replace")
        elif tag == IP_ADDRESS:
            yield str(ip_address(bytes(content)))


def not_after_s(certificate: bytes) -> float:
    """When a DER certificate expires, Unix time, seconds. Raises ValueError."""
    try:
        ((_, whole),) = elements(memoryview(certificate))
        _, signed = next(elements(whole))
        fields = [content for tag, content in elements(signed) if tag != VERSION]
        # serialNumber, signature, issuer, validity
        _, (tag, until) = elements(fields[3])
        text = bytes(until).decode("ascii")
        # UTCTime has years of two digits, from 1950 on.
        made = datetime.strptime(
            text if tag != UTC_TIME else ("20" if int(text[:2]) < 50 else "19") + text, "%Y%m%d%H%M%SZ"
        )
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"this is no X.509 certificate: {error}") from None
    return made.replace(tzinfo=UTC).timestamp()
