"""docs/compatibility.md says what the code does: the APIs, and the tests of other people that are expected to fail."""

from __future__ import annotations

import re
from pathlib import Path

from halfmoon.adapters.kafka.api import registered
from tools import interop_kafka_python

TEXT = (Path(__file__).parents[1] / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_the_table_of_apis() -> None:
    table = TEXT.split("<!-- apis -->")[1].split("<!-- /apis -->")[0]
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)-(\d+) \|$", table, re.MULTILINE)
    written = [(int(key), name, int(low), int(high)) for key, name, low, high in rows]
    apis = [api for _, api in sorted(registered().items())]
    assert written == [(api.key, api.name, api.min_version, api.max_version) for api in apis if not api.own]
    assert {str(api.key) for api in apis if api.own} <= set(re.findall(r"\b\d+\b", TEXT))


def test_every_test_that_is_expected_to_fail_is_named() -> None:
    section = TEXT.split("expected to")[1].split("\n## ")[0]
    assert set(re.findall(r"`(test_\w+)`", section)) == interop_kafka_python.EXPECTED
