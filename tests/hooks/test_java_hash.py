"""Java's String.hashCode, against values that Java computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfmoon.hooks.java_hash import string_hash

VECTORS = json.loads((Path(__file__).parents[1] / "plugins/allocate/vectors.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("text", "value"), VECTORS["tagHash"].items())
def test_tag_hashes(text: str, value: int) -> None:
    assert string_hash(text) == value


def test_nothing_hashes_to_nothing() -> None:
    assert string_hash(None) == string_hash("") == 0
