"""Every message in every version, byte for byte as kafka-python writes it."""

from __future__ import annotations

import kafka
import pytest

from halfmoon.adapters.kafka.api import registered
from halfmoon.kafka_wire.messages import APIS, REQUESTS, RESPONSES, message
from tests.kafka_messages import read
from tests.kafka_wire.filling import cases, filled, in_kafka_python, rows

GOLDEN = rows()
CASES = [(kind.name, version, how) for kind, version, how in cases()]
NAMES = sorted({name for name, _, _ in CASES})
MODERN = int(kafka.__version__.partition(".")[0]) >= 3
"""Older versions have other classes, and no version of their own for most messages."""


def test_there_are_golden_bytes_of_each_version_of_each_message() -> None:
    assert list(GOLDEN) == CASES


@pytest.mark.parametrize("name", NAMES)
def test_what_kafka_python_has_written_is_written_and_read(name: str) -> None:
    kind = message(name)
    for (other, version, how), said in GOLDEN.items():
        if other == name:
            written = filled(kind, version, how)
            assert written.encode(version) == said, (version, how)
            assert read(kind, version, said) == written, (version, how)


def test_all_that_is_served_is_defined() -> None:
    known = {api.key: api.last_version for api in APIS}
    for key, api in registered().items():
        if not api.own:
            assert api.max_version <= known[key]
            assert REQUESTS[key].api.name == api.name == RESPONSES[key].api.name


if MODERN:
    THEIRS = {kind.name: in_kafka_python(kind) for kinds in (REQUESTS, RESPONSES) for kind in kinds.values()}

    @pytest.mark.parametrize("name", [name for name, theirs in sorted(THEIRS.items()) if theirs is not None])
    def test_the_kafka_python_that_is_installed_agrees(name: str) -> None:
        kind, theirs = message(name), THEIRS[name]
        for (other, version, how), said in GOLDEN.items():
            if other == name and version <= theirs.max_version:
                assert bytes(filled(kind, version, how, theirs).encode(version=version)) == said, (version, how)
                assert theirs.flexible_version_q(version) == kind.api.is_flexible(version), version

    def test_it_knows_most_of_them() -> None:
        assert sum(theirs is not None for theirs in THEIRS.values()) >= 100
