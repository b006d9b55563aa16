"""What is wrong with bytes."""

from __future__ import annotations

from halfmoon.errors import HalfmoonError


class MalformedRequest(HalfmoonError):  # noqa: N818 (it names what is wrong, as the log line does)
    """The bytes of a message do not follow its definition. The connection it came on is closed, nothing else is
    touched."""
