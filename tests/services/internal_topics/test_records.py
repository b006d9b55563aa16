"""Bytes of Kafka's internal topics. Kafka's own classes read them in tests/interop/test_internal_topics.py."""

from __future__ import annotations

import pytest

from halfmoon.schema.control import Committed
from halfmoon.schema.groups import GroupRecord, SavedMember
from halfmoon.schema.transactions import Identity, TransactionState
from halfmoon.services.internal_topics import records


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Utils.abs(name.hashCode()) % 50, by Java
        ("", 0),
        ("a", 47),
        ("group", 47),
        ("my-group", 12),
        ("console-consumer-12345", 6),
        ("polygenelubricants", 0),  # Integer.MIN_VALUE
        ("größe", 7),
        ("漢字", 33),
        ("🌗", 47),
    ],
)
def test_partitions_are_javas(name: str, expected: int) -> None:
    assert records.partition_for(name) == expected


def test_offsets() -> None:
    assert records.offset_key("g", "tp", 7) == b"\0\1\0\1g\0\2tp\0\0\0\7"
    assert records.offset_value(Committed(5, -1, "né", 9)) == (
        b"\0\3\0\0\0\0\0\0\0\5\xff\xff\xff\xff\0\3n\xc3\xa9\0\0\0\0\0\0\0\x09"
    )


MEMBER = SavedMember("m", None, "c", "/h", 10, 20, (("other", b"-"), ("range", b"xy")), b"zz")


def test_a_group() -> None:
    assert records.group_key("g") == b"\0\2\0\1g"
    record = GroupRecord("g", 4, "consumer", "range", "m", True, (MEMBER,))
    assert records.group_value(record, 9) == (
        b"\0\3" b"\0\x08consumer" b"\0\0\0\4" b"\0\5range" b"\0\1m" b"\0\0\0\0\0\0\0\x09" b"\0\0\0\1"
        b"\0\1m" b"\xff\xff" b"\0\1c" b"\0\2/h" b"\0\0\0\x14" b"\0\0\0\x0a" b"\0\0\0\2xy" b"\0\0\0\2zz"
    )  # fmt: skip


def test_an_empty_group_names_no_protocol_and_no_leader() -> None:
    record = GroupRecord("g", 5, "consumer", "range", "m", False, ())
    assert records.group_value(record, 9) == (b"\0\3\0\x08consumer\0\0\0\5\xff\xff\xff\xff\0\0\0\0\0\0\0\x09\0\0\0\0")


def test_a_consumer_group() -> None:
    assert records.consumer_group_key("g") == b"\0\3\0\1g"
    assert records.consumer_group_value(7) == b"\0\0\0\0\0\7\0"


def test_a_transactional_id() -> None:
    assert records.transaction_key("x") == b"\0\0\0\1x"
    found = records.transaction_value(Identity(6, 2), 60_000, TransactionState.ONGOING, [("t", [1, 3])], 9, 8)
    assert found == (
        b"\0\0" b"\0\0\0\0\0\0\0\6" b"\0\2" b"\0\0\xea\x60" b"\1" b"\0\0\0\1" b"\0\1t" b"\0\0\0\2\0\0\0\1\0\0\0\3"
        b"\0\0\0\0\0\0\0\x09" b"\0\0\0\0\0\0\0\x08"
    )  # fmt: skip


def test_every_state_of_a_transaction_has_kafkas_number() -> None:
    assert {state.value: records.STATUS[state] for state in TransactionState} == {
        "Empty": 0, "Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5,
    }  # fmt: skip
