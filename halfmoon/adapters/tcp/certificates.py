"""What is read of a certificate that is shown, or kept in a file (RFC 5280)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address

from halfmoon.auth.der import EXTENSIONS, SEQUENCE, UTC_TIME, certificate_fields, elements, only

_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
_SUBJECT_ALT_NAME = bytes.fromhex("551d11")
"""2.5.29.17 (RFC 5280, 4.2.1.6)."""


def alternative_names(certificate: bytes) -> list[str]:
    """The host names and addresses that a DER certificate is for. Raises ValueError."""
    found: list[str] = []
    try:
        for field in certificate_fields(certificate):
            if field.tag == EXTENSIONS:
                for extension in elements(only(field.content, SEQUENCE)):
                    oid, *_, value = elements(extension.content)
                    if oid.content == _SUBJECT_ALT_NAME:
                        found += _names(value.content)
    except ValueError as error:
        raise ValueError(f"this is no X.509 certificate: {error}") from None
    return found


def _names(encoded: bytes) -> Iterator[str]:
    """Raises ValueError."""
    for tag, content, _ in elements(only(encoded, SEQUENCE)):
        if tag == _DNS_NAME:
            yield content.decode("ascii", "replace")
        elif tag == _IP_ADDRESS:
            yield str(ip_address(content))


def not_after_s(certificate: bytes) -> float:
    """When a DER certificate expires, Unix time, seconds. Raises ValueError."""
    try:
        validity = certificate_fields(certificate)[3]
        _, until = elements(validity.content)
        text = until.content.decode("ascii")
        # UTCTime has years of two digits, from 1950 on.
        made = datetime.strptime(
            text if until.tag != UTC_TIME else ("20" if int(text[:2]) < 50 else "19") + text, "%Y%m%d%H%M%SZ"
        )
    except ValueError as error:
        raise ValueError(f"this is no X.509 certificate: {error}") from None
    return made.replace(tzinfo=UTC).timestamp()
