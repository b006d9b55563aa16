"""What tests of plugins that move messages begin with, as those of the core do."""

from __future__ import annotations

from tests.core.conftest import clock, fs

__all__ = ["clock", "fs"]
