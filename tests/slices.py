"""Work over very many partitions, cut into small slices as if there were many; and a witness that each change of a
partition is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from halfmoon.core.catalog import snapshot
from halfmoon.services.common.encoded import EncodedLater
from halfmoon.services.groups.state import GroupsState

SMALL = {
    "halfmoon.core.catalog.snapshot.MANY": 0,
    "halfmoon.core.catalog.snapshot.SLICE": 2,
    "halfmoon.core.dispatch.CLOSED_AT_ONCE": 1,
    "halfmoon.core.dispatch.ADOPTED_AT_ONCE": 1,
    "halfmoon.core.index_files.RUNS_AT_ONCE": 1,
    "halfmoon.core.retention.SLICE_COST": 2,
    "halfmoon.core.retention.LIVES_COST": 1,
    "halfmoon.services.groups.state.ENCODED_AT_ONCE": 1,
    "halfmoon.services.groups.state.GROUPS_AT_ONCE": 1,
}

_take = snapshot.take


@contextmanager
def small_slices() -> Iterator[None]:
    with ExitStack() as stack:
        for name, value in SMALL.items():
            stack.enter_context(patch(name, value))
        yield


def _checked_take(*given: Any, again: bool = False, **more: Any) -> bytes:
    data = _take(*given, again=again, **more)
    groups = [section for section in given[0].sections if isinstance(section, GroupsState)]
    arrays: list[EncodedLater[str]] = [
        array for section in groups for array in (section._whole, section._saved_groups, section._saved_consumer_groups)
    ]
    topics = [each for section in groups for in_topic in section._in_topic.values() for each in in_topic.values()]
    known = [each.encoded for each in topics]
    elements = [(array._elements, array._left) for array in arrays]
    for each in topics:
        each.encoded = None
    for array in arrays:
        array._elements, array._left = dict.fromkeys(array._elements), deque(array._elements)
    assert not again or data == _take(*given, **more), "something has changed, and did not say so"
    for each, saved in zip(topics, known, strict=True):
        each.encoded = saved
    for array, those in zip(arrays, elements, strict=True):
        array._elements, array._left = those
    return data


@contextmanager
def checked_snapshots() -> Iterator[None]:
    """What snapshots take from before is compared with what they would say now. Raises AssertionError in them."""
    with patch("halfmoon.core.catalog.snapshot.take", _checked_take):
        yield
