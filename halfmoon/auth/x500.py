"""The subject of a certificate, as Java's X500Principal.getName() writes it (RFC 2253): Kafka's name of a client that
authenticates by TLS.

Only what leads to the subject is read: the certificate has been verified before.
"""

from __future__ import annotations

import re

from halfmoon.auth.der import OID, SEQUENCE, SET, certificate_fields, elements, only
from halfmoon.auth.errors import AuthenticationError

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
    try:
        return _name(certificate_fields(certificate)[4].raw)
    except ValueError as error:
        raise AuthenticationError(f"the certificate is malformed: {error}") from None


def name(encoded: bytes) -> str:
    """Of a Name in DER; empty for an empty one. Raises AuthenticationError."""
    try:
        return _name(encoded)
    except ValueError as error:
        raise AuthenticationError(f"the certificate's name is malformed: {error}") from None


def _name(encoded: bytes) -> str:
    """Raises ValueError."""
    parts = []
    for attributes in elements(only(encoded, SEQUENCE)):
        if attributes.tag != SET:
            raise ValueError("a part of the name is no set")
        parts.append("+".join(_attribute(tag, content) for tag, content, _ in elements(attributes.content)))
    return ",".join(reversed(parts))


def _attribute(tag: int, content: bytes) -> str:
    found = list(elements(content))
    if tag != SEQUENCE or len(found) != 2 or found[0].tag != OID:
        raise ValueError("an attribute of the name has no type or no value")
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
        raise ValueError("an attribute's type is cut off")
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
