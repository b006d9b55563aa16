"""The header of a frame, as JSON. A module of its own: msgspec reads the types of fields, which compiled classes do not
keep."""

from __future__ import annotations

from msgspec import Struct


class JsonHeader(Struct):
    code: int
    opaque: int = 0
    flag: int = 0
    version: int = 0
    language: str = "OTHER"
    remark: str | None = None
    extFields: dict[str, str | None] | None = None  # noqa: N815 (the wire's name)
