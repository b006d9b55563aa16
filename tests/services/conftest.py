"""What most tests of services begin with."""

from __future__ import annotations

from tests.core.conftest import clock, fs

__all__ = ["clock", "fs"]
