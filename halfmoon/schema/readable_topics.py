"""Internal topics of our own that clients may read, as far as rules allow it. All others are the broker's alone."""

from __future__ import annotations

AUDIT_TOPIC = "halfmoon.audit"
"""What clients were refused, and what they changed: JSON, a line a record."""

READABLE = frozenset((AUDIT_TOPIC,))
