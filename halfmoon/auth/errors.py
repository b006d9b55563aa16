"""Why somebody is not let in."""

from __future__ import annotations

from halfmoon.errors import HalfmoonError


class AuthenticationError(HalfmoonError):
    """Not authenticated. The text may name users and must not be sent to the peer; it holds no secret."""
