"""Produced batches whose records carry a TTL: it must be a number, and the time is for the broker to say.

A program that copies what it has read copies the time of a redelivered message, too. It is taken off, but where the
message is negatively acknowledged: there its TTL goes on.
"""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.records.record_codec import Record
from halfmoon.core.steps import Slices, finish
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.group_topics import retrying_group
from halfmoon.schema.lifetimes import EXPIRES, TTL
from halfmoon.services.common.lifetimes import SEARCH, milliseconds
from halfmoon.services.common.record_edit import rewrite_in_slices

_SHOWN = 40
"""Bytes of a wrong value that a refusal shows."""


class Put(Protocol):
    """A produced batch, as interceptors see it."""

    @property
    def topic(self) -> str: ...
    @property
    def batch(self) -> memoryview: ...


def check(put: Put) -> memoryview | bytes:
    """The batch to store. Raises BrokerError(INVALID_RECORD) where a TTL is no number from 1 on."""
    return finish(check_in_slices(put))


def check_in_slices(put: Put) -> Slices[memoryview | bytes]:
    """The same, with pauses."""
    keeps_time = retrying_group(put.topic) is not None
    changed = False

    def change(index: int, record: Record) -> Record:
        nonlocal changed
        said = dict(record.headers)
        if TTL in said and milliseconds(said[TTL]) is None:
            shown = (said[TTL] or b"")[:_SHOWN]
            raise BrokerError(
                Fault.INVALID_RECORD,
                f"record {index}: header {TTL} is {shown!r}, expected milliseconds, a whole number from 1 on",
            )
        if EXPIRES not in said or keeps_time:
            return record
        changed = True
        return record._replace(headers=tuple(each for each in record.headers if each[0] != EXPIRES))

    made = yield from rewrite_in_slices(put.batch, SEARCH, change)
    assert made is not None, "nothing is left out"
    return made if changed else put.batch
