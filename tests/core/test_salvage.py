"""What is concluded from what rot has left. How whole starts come out of it: test_recovery.py."""

from __future__ import annotations

from typing import TypeVar

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.salvage import Salvage
from halfmoon.core.storage import frame
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.core.transactions import marker
from halfmoon.schema import control
from halfmoon.schema.transactions import Identity
from halfmoon.server.assembly import Sections
from halfmoon.services.groups.state import GroupsState
from halfmoon.services.transactions.state import TransactionsState


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(load_settings({}, {}, {}))
    Sections(catalog)
    catalog.apply(control.TopicCreated(0, "t", b"t" * 16, 1, {}))
    return catalog


@pytest.fixture
def salvage(catalog: Catalog) -> Salvage:
    return Salvage(catalog)


T = TypeVar("T")


def section(catalog: Catalog, kind: type[T]) -> T:
    return next(each for each in catalog.sections if isinstance(each, kind))


def batch_frame(number: int, index: int, base_offset: int, span: int = 1, part: int = 0, parts: int = 1) -> Frame:
    made = frame.encode(
        Kind.BATCH, 92, 0, 0, 4, number, index, span, base_offset, span, span, 0, part=part, parts=parts
    )
    return frame.decode(memoryview(made), 0, 0)


def show(salvage: Salvage, catalog: Catalog, record: control.Any, part: int = 0, parts: int = 1) -> None:
    """As recovery does it: salvage first, then the record."""
    made = frame.encode(Kind.CONTROL, 92, 0, 0, 4, -1, -1, 0, 0, 0, 0, 0, part=part, parts=parts)
    salvage.frame(frame.decode(memoryview(made), 0, 0), memoryview(control.encode(record)))
    catalog.apply(record)


def partition(catalog: Catalog, number: int = 0, index: int = 0) -> Partition:
    found = catalog.partition(number, index)
    assert found is not None
    return found


def test_offsets_before_the_next_batch_are_lost(catalog: Catalog, salvage: Salvage) -> None:
    partition(catalog).next_offset = 3
    salvage.frame(batch_frame(0, 0, 8), memoryview(b"x"))
    assert partition(catalog).queue.damaged == [(3, 8)]
    assert partition(catalog).next_offset == 3, "the batch itself is for recovery to apply"


def test_of_a_batch_with_a_whole_header_the_offsets_are_lost_and_never_given_again(
    catalog: Catalog, salvage: Salvage
) -> None:
    salvage.frame(batch_frame(0, 0, 0, 5), None)
    it = partition(catalog)
    assert (it.queue.damaged, it.next_offset, it.epochs) == ([(0, 5)], 5, [(4, 0)])


def test_a_batch_proves_its_topic_and_partition(catalog: Catalog, salvage: Salvage) -> None:
    salvage.frame(batch_frame(2, 3, 70), memoryview(b"x"))
    topic = catalog.by_name["halfmoon.lost-topic-2"]
    assert len(topic.partitions) == 4
    assert (topic.partitions[3].start_offset, topic.partitions[3].next_offset) == (70, 70)
    assert catalog.next_topic_number == 3
    salvage.frame(batch_frame(0, 1, 9), memoryview(b"x"))
    assert partition(catalog, 0, 1).start_offset == 9
    salvage.frame(batch_frame(1, 0, 0), memoryview(b"x"))
    assert "halfmoon.lost-topic-1" in catalog.by_name, "the number was skipped, so its creation is lost, too"


def test_a_deleted_topic_is_not_brought_back(catalog: Catalog, salvage: Salvage) -> None:
    show(salvage, catalog, control.TopicDeleted(0))
    salvage.frame(batch_frame(0, 0, 5), memoryview(b"x"))
    assert catalog.by_number == {}
    show(salvage, catalog, control.TopicCreated(2, "later", b"l" * 16, 1, {}))
    salvage.frame(batch_frame(1, 0, 5), memoryview(b"x"))
    assert set(catalog.by_name) == {"later", "halfmoon.lost-topic-1"}


def truth(catalog: Catalog) -> bytes:
    """A snapshot of how it really was: t grown, renamed numbers, one topic more, one less."""
    real = Catalog(load_settings({}, {}, {}))
    Sections(real)
    real.apply(control.TopicCreated(0, "t", b"t" * 16, 3, {"retention.ms": "5"}))
    real.apply(control.TopicCreated(2, "orders", b"o" * 16, 2, {}))
    real.apply(control.TopicCreated(5, "quiet", b"q" * 16, 1, {}))
    real.next_producer_id = 4000
    for number, next_offset, start in ((0, 20, 10), (2, 30, 0), (5, 7, 7)):
        it = partition(real, number)
        it.next_offset, it.start_offset, it.epochs = next_offset, start, [(1, 0)]
    section(real, GroupsState).commit("g", [(0, 0, control.Committed(15, 1, "", 0))])
    return snapshot.take(real, 0, 1, producers=False)


@pytest.mark.parametrize("part_bytes", [1 << 20, 50])
def test_the_next_snapshot_sets_everything_right(
    catalog: Catalog, salvage: Salvage, monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr(snapshot, "PART_BYTES", part_bytes)
    catalog.apply(control.TopicCreated(1, "deleted", b"d" * 16, 1, {}))
    partition(catalog).next_offset = 14
    salvage.frame(batch_frame(2, 0, 25), memoryview(b"x"))
    partition(catalog, 2).next_offset = 26
    guessed = partition(catalog, 2)
    parts = list(snapshot.parts(truth(catalog)))
    for at, part in enumerate(parts):
        show(salvage, catalog, part, at, len(parts))
    assert set(catalog.by_name) == {"t", "orders", "quiet"}
    assert set(catalog.by_id) == {b"t" * 16, b"o" * 16, b"q" * 16}
    assert partition(catalog, 2) is guessed, "what was found of it stays found"
    assert guessed.queue.damaged == [(26, 30)]
    it = partition(catalog)
    assert (it.start_offset, it.next_offset, it.queue.damaged) == (10, 20, [(14, 20)])
    assert catalog.by_name["t"].rules.retention_ms == 5
    assert len(catalog.by_name["t"].partitions) == 3
    assert partition(catalog, 5).queue.damaged == []
    assert (catalog.next_topic_number, catalog.next_producer_id) == (6, 4000)
    assert section(catalog, GroupsState).offsets["g"][0, 0].offset == 15


@pytest.mark.parametrize("epoch", [3, 4], ids=["older", "epoch bumped"])
@pytest.mark.parametrize("committed", [True, False])
def test_one_marker_tells_how_a_transaction_ended(
    catalog: Catalog, salvage: Salvage, committed: bool, epoch: int
) -> None:
    catalog.apply(control.PartitionsAdded(0, 2))
    catalog.apply(control.TransactionalIdInitialized("x", Identity(7, 3), 60_000, 0))
    catalog.apply(control.TransactionGrown("x", [(0, 0), (0, 1)], [], 0))
    for index in (0, 1):
        it = partition(catalog, 0, index)
        it.transaction_began(7, 0)
        it.next_offset = 1
    batch = memoryview(marker.build(7, epoch, 0, 0, committed=committed))
    salvage.frame(batch_frame(0, 0, 1, part=0, parts=3), batch)
    partition(catalog).transaction_ended(7, epoch, 1, 2, 0, committed=committed)  # as recovery does it
    partition(catalog).next_offset = 2
    assert section(catalog, TransactionsState).ongoing
    salvage.finish()  # the log ends here
    entry = section(catalog, TransactionsState).by_name["x"]
    assert (entry.state.value, entry.epoch) == ("CompleteCommit" if committed else "CompleteAbort", epoch)
    other = partition(catalog, 0, 1)
    assert (other.queue.damaged, other.next_offset) == ([(1, 2)], 2)
    assert other.transactions is not None
    assert [each.first_offset for each in other.transactions.aborted] == ([] if committed else [0])
