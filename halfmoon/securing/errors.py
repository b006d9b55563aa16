"""What cannot be used to connect."""

from __future__ import annotations

from halfmoon.errors import HalfmoonError


class SecurityError(HalfmoonError):
    """A client.properties, or what it names, cannot be used. The message is one line."""
