"""Which batches, and which of their records, may carry a header of one of these names: by searching for its bytes.

A search knows nothing of records, so it may find bytes that are no header; it never misses one. StringZilla looks at
30 GB a second for each name, ten times as much as Python's own searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import stringzilla

if TYPE_CHECKING:
    from typing_extensions import Buffer

SHORTEST_PREFIX: Final = 6
"""Names that share so many bytes are searched for by these."""

_find: Final = stringzilla.find
_count: Final = stringzilla.count


class HeaderSearch:
    """For headers of these names, and for those that begin with one of the prefixes."""

    def __init__(self, names: Sequence[str], prefixes: Sequence[str] = ()) -> None:
        self._needles = (*_needles(names), *(prefix.encode() for prefix in prefixes))

    def finds(self, body: Buffer) -> bool:
        """Whether a record in these bytes (decompressed) may have such a header."""
        for needle in self._needles:  # noqa: SIM110 (a generator costs as much as the searches)
            if _find(body, needle) >= 0:
                return True
        return False

    def count(self, body: Buffer) -> int:
        """How often these bytes have what is searched for."""
        return sum(int(_count(body, needle)) for needle in self._needles)

    def records(self, body: bytes, bounds: array[int]) -> list[int]:
        """Indexes of the records that may have one, ascending; record i is body[bounds[i]:bounds[i + 1]]. They may be a
        part of all records."""
        found: set[int] = set()
        begin, end = bounds[0], bounds[-1]
        for needle in self._needles:
            at = _find(body, needle, begin, end)
            while at >= 0:
                index = bisect_right(bounds, at) - 1
                found.add(index)
                at = _find(body, needle, bounds[index + 1], end)
        return sorted(found)


def _needles(names: Sequence[str]) -> list[bytes]:
    groups: list[list[str]] = []
    for name in sorted(set(names)):
        if groups and len(_shared([groups[-1][0], name])) >= SHORTEST_PREFIX:
            groups[-1].append(name)
        else:
            groups.append([name])
    return [_shared(group).encode() for group in groups]


def _shared(names: Sequence[str]) -> str:
    """What all of them begin with."""
    first, last = min(names), max(names)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:same]
