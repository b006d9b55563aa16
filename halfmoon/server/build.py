"""Whether the hot modules run compiled (setup.py), or as Python."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

ONE_OF_THEM = "halfmoon.core.records.batch_header"


def build() -> str:
    """`compiled` or `pure`."""
    found = find_spec(ONE_OF_THEM)
    assert found is not None and found.origin is not None
    return "compiled" if found.origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure"
