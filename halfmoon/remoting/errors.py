"""What is wrong with bytes."""

from __future__ import annotations


class MalformedFrame(Exception):  # noqa: N818 (it is not ours)
    """Bytes that are no frame, or no message: the connection they came over cannot be trusted any more."""


class MalformedJson(Exception):  # noqa: N818 (nor is this)
    """A text that is no JSON, or holds something else than its reader expects."""
