"""What is wrong with bytes."""

from __future__ import annotations


class MalformedFrame(Exception):  # noqa: N818 (it is not ours)
    """Bytes that are no frame, or no message: the connection they came over cannot be trusted any more."""
