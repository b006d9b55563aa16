"""Which release of Kafka clients take this broker for: they compare what ApiVersions lists with what each release had.

franz-go's kversion wants every key of a release, also of what brokers ask each other, and takes a broker that lacks one
for an older release. tests/interop asks it itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.unsupported import UNSUPPORTED

GOLDEN = Path(__file__).parents[2] / "golden"
BETWEEN_BROKERS = {4, 5, 6, 7, 27, 56, 57, 58, 67, 71, 72}
"""Keys that kversion leaves out, since few but Kafka have them."""
Releases = Mapping[str, Mapping[int, int]]


def of_kafka() -> Releases:
    """Release → key → last version. 3.9 is a broker with ZooKeeper."""
    found: dict[str, dict[int, int]] = {}
    for line in (GOLDEN / "kafka-releases.tsv").read_text(encoding="utf-8").splitlines():
        release, key, last = line.split("\t")
        if int(key) not in BETWEEN_BROKERS:
            found.setdefault(release, {})[int(key)] = int(last)
    return found


def here() -> dict[int, int]:
    return {key: api.max_version for key, api in registered().items() if not api.own}


def less(release: Mapping[int, int], offered: Mapping[int, int]) -> set[int]:
    """What of a release is missing, or is there in lower versions only."""
    return {key for key, last in release.items() if offered.get(key, -1) < last}


def test_everything_of_3_9_and_more() -> None:
    release, offered = of_kafka()["3.9"], here()
    assert less(release, offered) == set()
    assert any(offered[key] > last for key, last in release.items())


@pytest.mark.parametrize("release", ["4.0", "4.1", "4.2", "4.3"])
def test_of_4_only_what_is_documented_is_missing(release: str) -> None:
    found = of_kafka()[release]
    assert less(found, here()) == {each.key for each in UNSUPPORTED} & found.keys() - BETWEEN_BROKERS


def test_no_version_is_above_those_of_4_3() -> None:
    latest = of_kafka()["4.3"]
    assert {key: last for key, last in here().items() if key in latest and last > latest[key]} == {}


def test_the_table_says_of_4_3_what_a_broker_says() -> None:
    lines = [line.split("\t") for line in (GOLDEN / "kafka-4.3.1-apis.tsv").read_text(encoding="utf-8").splitlines()]
    listed = {int(key): int(last) for key, _, _, last in lines if int(key) not in BETWEEN_BROKERS}
    assert of_kafka()["4.3"] == listed
