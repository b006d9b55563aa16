"""Ids of clusters and delegation tokens: 16 random bytes as 22 letters of base64's URL alphabet, as Kafka's Uuid."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable


def new_uuid(random_bytes: Callable[[int], bytes]) -> str:
    """One that can be typed as an argument of a command: none begins with a hyphen (Uuid.randomUuid)."""
    while True:
        text = uuid_text(random_bytes(16))
        if not text.startswith("-"):
            return text


def uuid_text(uuid: bytes) -> str:
    assert len(uuid) == 16
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()
