"""A data directory that revision 57d488e has left, once after a clean stop and once killed: it opens, nothing of it is
lost, and what it says is written again as the same bytes.

`tests/golden/stored_data/57d488e.tar.xz` holds both directories with every kind of state in them (topics, a view, a
compacted topic, both kinds of groups, a share group, transactions of each outcome, delayed and negatively acknowledged
records, cancels, quotas, access rules, configurations), what that revision read from each topic, and its own snapshot.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from halfmoon.config.settings import Settings
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.schema.snapshot import decode
from halfmoon.server.assembly import Sections
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, read_all, turn

STORED = Path(__file__).parents[1] / "golden" / "stored_data" / "57d488e.tar.xz"
WAYS = pytest.mark.parametrize("way", ["clean", "killed"])
FIXED = 3
"""Position, generation and whether it is clean stand before what the catalog says."""
COUNT_BYTES = 3
"""The msgpack array begins with the number of its fields, …"""
LATER = b"\x90\x90\x90"
"""… which stand behind those of that revision since then, and are empty in what it has left: `unwritten`, `users`,
`tokens`."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(STORED) as archive:
        archive.extractall(folder, filter="data")
    return folder


def fields(data: bytes) -> list[Any]:
    return msgspec.msgpack.decode(data)


def opened(stored: Path, way: str) -> tuple[BareNode, VirtualClock, dict[str, Any]]:
    known = json.loads((stored / f"{way}.json").read_text())
    clock = VirtualClock()
    clock.now_ms = known["now_ms"]
    return open_broker(OsFileSystem(stored / way), clock), clock, known["topics"]


@WAYS
@pytest.mark.parametrize("with_sections", [True, False], ids=["sections", "offline"])
def test_a_snapshot_that_is_taken_again_is_equal_to_the_byte(stored: Path, way: str, with_sections: bool) -> None:
    """Also where nobody knows what is in the features' slots."""
    data = (stored / f"{way}.snapshot").read_bytes()
    known = decode(data)
    catalog = Catalog(Settings())
    if with_sections:
        Sections(catalog)
    snapshot.restore(catalog, known)
    taken = snapshot.take(catalog, known.position, known.generation)
    assert taken[COUNT_BYTES : len(data)] == data[COUNT_BYTES:]
    assert taken[len(data) :] == LATER
    assert len(fields(taken)) == len(fields(data)) + len(LATER)


@WAYS
def test_every_slot_of_the_stored_snapshot_holds_something(stored: Path, way: str) -> None:
    """Else the test above says little."""
    empty = [
        name
        for name, value in zip(
            decode((stored / f"{way}.snapshot").read_bytes()).__struct_fields__[: -len(LATER)],
            fields((stored / f"{way}.snapshot").read_bytes()),
            strict=True,
        )
        if value in ([], None)
    ]
    assert empty == []


@WAYS
def test_what_it_held_is_there(stored: Path, tmp_path: Path, way: str) -> None:
    broker, _, topics = opened(stored, way)
    assert {topic.name for topic in broker.topics()} == set(topics)
    for topic in broker.topics():
        known = topics[topic.name]
        assert (topic.number, topic.internal, topic.configs) == (known["number"], known["internal"], known["configs"])
        for partition, there in zip(topic.partitions, known["partitions"], strict=True):
            assert partition.start_offset == there["start"]
            assert partition.moved_upto == there["moved_upto"]
            found = [
                [offset, value.decode("latin1")[:20]] for offset, value in read_all(broker, topic.name, partition.index)
            ]
            assert found[: len(there["records"])] == there["records"]
            assert partition.stable_offset >= there["stable"]
    said, now = (
        fields((stored / f"{way}.snapshot").read_bytes()),
        fields(snapshot.take(broker.catalog, 0, broker.generation)),
    )
    for name, before, after in zip(
        decode(snapshot.take(broker.catalog, 0, 0)).__struct_fields__, [*said, *([] for _ in LATER)], now, strict=True
    ):
        if name not in ("position", "generation", "clean", "topics"):
            assert after == before, name
    turn(broker)
    broker.close()
