"""The subject of a certificate, as Java's X500Principal.getName() writes it (RFC 2253): Kafka's name of a client that
authenticates by TLS.

DER is read here by hand, so that TLS needs no more than the standard library. Only what leads to the subject is read:
the certificate has been verified before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from halfmoon.auth.errors import AuthenticationError

_INTEGER, _OID, _SEQUENCE, _SET, _VERSION = 0x02, 0x06, 0x30, 0x31, 0xA0
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Those of RFC 2253. Values of all others are written in hex."""
_TEXTS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. All are read as UTF-8, by Java too."""
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_ESCAPED = frozenset(',=+<>#;"\\')


def subject(certificate: bytes) -> str:
    """Of a certificate in DER (`ssl.SSLSocket.getpeercert(binary_form=True)`). Raises AuthenticationError."""
    whole = _only(certificate, _SEQUENCE)
    tag, fields, _ = next(_elements(whole), (0, b"", b""))
    if tag != _SEQUENCE:
        raise AuthenticationError("the certificate is malformed")
    found = [(tag, raw) for tag, _, raw in _elements(fields)]
    if found and found[0][0] == _VERSION:
        del found[0]
    # Serial number, signature algorithm, issuer, validity, subject.
    if len(found) < 5 or found[0][0] != _INTEGER:
        raise AuthenticationError("the certificate is malformed")
    return name(found[4][1])


def name(encoded: bytes) -> str:
    """Of a Name in DER; empty for an empty one. Raises AuthenticationError."""
    parts = []
    for tag, attributes, _ in _elements(_only(encoded, _SEQUENCE)):
        if tag != _SET:
            raise AuthenticationError("the certificate's name is malformed")
        parts.append("+".join(_attribute(tag, content) for tag, content, _ in _elements(attributes)))
    return ",".join(reversed(parts))


def _attribute(tag: int, content: bytes) -> str:
    found = list(_elements(content))
    if tag != _SEQUENCE or len(found) != 2 or found[0][0] != _OID:
        raise AuthenticationError("the certificate's name is malformed")
    (_, oid, _), (kind, value, raw) = found
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or kind not in _TEXTS:
        return f"{keyword or dotted}=#{raw.hex()}"
    # To Java an encoded surrogate, whole or cut, is one malformed character, to Python several.
    value = _SURROGATE.sub("\ufffd".encode(), value)
    return f"{keyword}={_escape(value.decode(errors='replace'))}"


def _escape(text: str) -> str:
    inner = text.strip(" \r")
    lead = len(text) - len(text.lstrip(" \r"))
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in inner)
    return (
        "".join(f"\\{each}" for each in text[:lead])
        + escaped
        + "".join(f"\\{each}" for each in text[lead + len(inner) :])
    )


def _dotted(oid: bytes) -> str:
    if not oid or oid[-1] & 0x80:
        raise AuthenticationError("the certificate's name is malformed")
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _only(encoded: bytes, tag: int) -> bytes:
    """The content of the one element that this is."""
    found = list(_elements(encoded))
    if len(found) != 1 or found[0][0] != tag:
        raise AuthenticationError("the certificate is malformed")
    return found[0][1]


def _elements(encoded: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(tag, content, the whole element) of what stands one after the other."""
    at = 0
    while at < len(encoded):
        begin = at
        tag, length = encoded[at], encoded[at + 1] if at + 1 < len(encoded) else 0x80
        at += 2
        if length >= 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4 or at + count > len(encoded):
                raise AuthenticationError("the certificate is malformed")
            length = int.from_bytes(encoded[at : at + count], "big")
            at += count
        if at + length > len(encoded):
            raise AuthenticationError("the certificate is malformed")
        yield tag, encoded[at : at + length], encoded[begin : at + length]
        at += length
