"""docs/configuration.md and docs/compatibility.md list what the code has; and the list of missing APIs is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.unsupported import UNSUPPORTED, table
from halfmoon.services.quotas.service import _OF_CLIENTS, CONNECTIONS
from tools.config_tables import DOCS, tables

KAFKA = Path(__file__).parent / "golden" / "kafka-4.3.1-apis.tsv"
"""What Kafka 4.3.1 lists in ApiVersions: key, name, lowest and highest version."""


def between(document: str, name: str) -> str:
    text = (DOCS / document).read_text(encoding="utf-8")
    return text.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- /{name} -->")[0]


@pytest.mark.parametrize("name", tables())
def test_the_tables_of_configurations(name: str) -> None:
    """`python tools/config_tables.py` writes them."""
    assert between("configuration.md", name) == tables()[name]


def test_the_keys_of_quotas() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8").split("## Client quotas")[1]
    assert [key for key in (*_OF_CLIENTS, CONNECTIONS) if f"| `{key}` |" not in text] == []


def test_the_table_of_missing_apis() -> None:
    assert between("compatibility.md", "unsupported") == table()


def test_every_api_of_kafkas_is_there_or_said_to_be_missing() -> None:
    lines = [line.split("\t") for line in KAFKA.read_text(encoding="utf-8").splitlines()]
    kafka = {int(key): (name, int(low), int(high)) for key, name, low, high in lines}
    here = registered()
    missing = {each.key: each.name for each in UNSUPPORTED}
    assert not missing.keys() & here.keys(), "what is offered is not missing"
    assert kafka.keys() - here.keys() == missing.keys()
    assert all(kafka[key][0] == name for key, name in missing.items())
    # What is offered is not less than in Kafka.
    less = {key: (here[key].min_version, here[key].max_version) for key in kafka.keys() & here.keys()}
    less = {key: low_high for key, low_high in less.items() if low_high[1] < kafka[key][2]}
    assert less == {}
