"""Control records: their bytes stay what they are, and unknown ones are noticed."""

from __future__ import annotations

import msgspec
import pytest

from halfmoon.schema import control
from halfmoon.schema.control import Committed
from halfmoon.schema.groups import ClassicSide, ConsumerGroupChange, ConsumerMember, GroupRecord, SavedMember
from halfmoon.schema.transactions import Identity

RECORDS: list[control.Any] = [
    control.GenerationStarted(3, 1_700_000_000_000),
    control.TopicCreated(7, "orders", b"0123456789abcdef", 4, {"retention.ms": "5"}, True),
    control.TopicCreated(8, "orders.paid", b"0123456789abcdeg", 2, {}, False, control.Binding(7, [3, 1 << 40])),
    control.TopicDeleted(7),
    control.PartitionsAdded(7, 9),
    control.ConfigsSet(7, {}),
    control.StartOffsetsMoved([(7, 0, 100), (7, 1, 1 << 40)]),
    control.Relayed([(8, 0, 12)]),
    control.Settled([(8, 0, 12)]),
    control.Cancelled(8, [b"k"], 1_000),
    control.CancelsDone([(8, b"k")]),
    control.ProducerAdvanced(8, 0, 77, 1, 5, 3, 1_700_000_000_000),
    control.OffsetsCommitted("g", [(7, 0, Committed(5, -1, "note", 9))]),
    control.OffsetsDeleted("g", [(7, 0)]),
    control.GroupSaved(GroupRecord("g", 4, "consumer", "range", "m", True, ()), 10),
    control.ConsumerGroupSaved(
        ConsumerGroupChange(
            "g",
            5,
            4,
            True,
            ((7, 4),),
            (
                ConsumerMember(
                    "m",
                    "i",
                    "r",
                    "c",
                    "/h",
                    9,
                    ("t",),
                    "t.*",
                    "range",
                    3,
                    2,
                    "unrevoked",
                    ((7, 0, 3),),
                    ((7, 1, 2),),
                    ClassicSide(10, (("range", b"x"),)),
                ),
            ),
            (("m", ((7, 0), (7, 2))),),
            ("gone",),
        ),
        10,
    ),
    control.ShardBegun(3),
    control.PartitionsPlaced(7, 2, bytes([0, 15, 3])),
    control.ShardImported(3, [4, 9], 1 << 40),
    control.GroupsElsewhere(["g", "h"]),
    control.WaitingKept(7, 2, 3_000, [(0, b"\x01" * 128), (2, bytes(127) + b"\x80")]),
    control.ShardStarted(3, 9),
    control.CatalogSeen(1 << 40),
    control.GroupDeleted("g"),
    control.InternalWritten([control.InternalKey("o", "g", "t", 3), control.InternalKey("t", "id")]),
    control.TopicRenamed(7, "renamed.t"),
    control.ShareGroupSaved("g", 3),
    control.ShareChanged("g", 7, 0, 12, [(12, 15, 2, 0), (15, 1 << 40, 5, 3)]),
    control.ShareReset("g", [(7, 0, 1 << 40)]),
    control.ShareForgotten("g", [(7, 0), (7, 1)]),
    control.ProducerIdsReserved(2000),
    control.TransactionalIdInitialized("t", Identity(1000, 3, 900, 2), 60_000, 10),
    control.TransactionGrown("t", [(7, 0), (8, 1)], ["g"], 11),
    control.TransactionOffsets("t", "g", [(7, 0, Committed(5, -1, "note", 9))]),
    control.TransactionPrepared("t", Identity(1000, 4), False, 12),
    control.TransactionOffsetsEnded("t", "g", True),
    control.TransactionEnded("t", Identity(1000, 4), True, 12),
    control.TransactionalIdsExpired(["t"]),
    control.RemoteOffsets(1000, 3, 4_711, "g", [(7, 0, Committed(5, -1, "note", 9))]),
    control.RemoteOffsetsEnded(1000, "g", True),
    control.ResourceConfigsSet("group", "g", {"share.isolation.level": "read_committed"}),
    control.QuotasSet([("client-id", "c"), ("user", None)], {"producer_byte_rate": 1024.5}),
    control.AclsChanged([control.AclRule(2, "t", 3, "User:a", "*", 3, 3)], []),
    control.UsersChanged(
        [control.User("alice", [control.ScramCredential(2, b"salt", b"s", b"k", 4096)], True, True, b"\x01\x02")],
        ["bob"],
    ),
    control.TokensChanged([control.DelegationToken("id", "User:a", "User:b", ["User:c"], 1, 3, 2)], ["gone"]),
    control.Cleaned(1 << 62, (1 << 62) + 999, [control.Moved(7, 0, 0, 1 << 40, 5)], [(7, 0, 3, 4)]),
    control.SnapshotPart(b"\x00\xff"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_come_back_as_they_went(record: control.Any) -> None:
    assert control.decode(control.encode(record)) == record
    assert control.decode(memoryview(control.encode(record))) == record


def test_every_kind_of_record_is_tested_and_tagged_once() -> None:
    kinds = set(control.Any.__args__)
    assert {type(record) for record in RECORDS} == kinds
    tags = [kind.__struct_config__.tag for kind in kinds]
    assert len(set(tags)) == len(tags)


def test_the_bytes_of_a_record_are_an_array_that_begins_with_its_tag() -> None:
    """What is in a log must be read for ever: this may only change together with a version."""
    assert control.encode(control.PartitionsAdded(7, 300, 5)) == b"\x94\xaapartitions\x07\xcd\x01\x2c\x05"
    assert control.encode(control.TopicCreated(1, "t", b"i", 2, {"k": "v"}, first_queue=6)) == (
        b"\x99\xa5topic\x01\xa1t\xc4\x01i\x02\x81\xa1k\xa1v\xc2\xc0\x06"
    )
    view = control.TopicCreated(1, "t", b"i", 2, {}, False, control.Binding(3, [4, 5]))
    assert control.encode(view) == b"\x99\xa5topic\x01\xa1t\xc4\x01i\x02\x80\xc2\x92\x03\x92\x04\x05\xff"
    assert control.encode(control.Relayed([(1, 0, 9)])) == b"\x92\xa7relayed\x91\x93\x01\x00\x09"


def test_the_bytes_of_what_shards_remember() -> None:
    assert control.encode(control.ShardBegun(3)) == b"\x92\xa5shard\x03"
    assert control.encode(control.PartitionsPlaced(7, 2, b"\0\x0f")) == b"\x94\xa6placed\x07\x02\xc4\x02\0\x0f"
    assert control.encode(control.ShardStarted(3, 9, 2)) == b"\x94\xadshard-started\x03\x09\x02"
    assert control.decode(b"\x93\xadshard-started\x03\x09") == control.ShardStarted(3, 9)
    assert control.encode(control.CatalogSeen(300)) == b"\x92\xa7catalog\xcd\x01\x2c"


def test_the_bytes_of_what_was_written_into_internal_topics() -> None:
    record = control.InternalWritten([control.InternalKey("o", "g", "t", 3), control.InternalKey("c", "h")])
    assert control.encode(record) == (b"\x92\xb0internal-written\x92\x94\xa1o\xa1g\xa1t\x03\x94\xa1c\xa1h\xa0\xff")
    assert control.encode(control.TopicRenamed(7, "n")) == b"\x93\xadtopic-renamed\x07\xa1n"


def test_the_bytes_of_users_and_tokens() -> None:
    user = control.User("a", [control.ScramCredential(1, b"s", b"t", b"k", 4096)], False, True, b"x")
    assert control.encode(control.UsersChanged([user], ["b"])) == (
        b"\x93\xa5users\x91\x95\xa1a\x91\x95\x01\xc4\x01s\xc4\x01t\xc4\x01k\xcd\x10\x00\xc2\xc3\xc4\x01x\x91\xa1b"
    )
    token = control.DelegationToken("i", "User:a", "User:b", [], 1, 3, 2)
    assert control.encode(control.TokensChanged([token], [])) == (
        b"\x93\xa6tokens\x91\x97\xa1i\xa6User:a\xa6User:b\x90\x01\x03\x02\x90"
    )


def test_no_secret_of_a_user_is_shown() -> None:
    user = control.User(
        "a", [control.ScramCredential(1, b"salt-x", b"stored-x", b"server-x", 4096)], sealed=b"sealed-x"
    )
    assert "-x" not in repr(control.UsersChanged([user], []))


def test_what_was_written_before_queues_had_numbers_is_read() -> None:
    grown = b"\x93\xaapartitions\x07\xcd\x01\x2c"
    assert control.decode(grown) == control.PartitionsAdded(7, 300, -1)
    created = b"\x98\xa5topic\x01\xa1t\xc4\x01i\x02\x81\xa1k\xa1v\xc2\xc0"
    assert control.decode(created) == control.TopicCreated(1, "t", b"i", 2, {"k": "v"}, first_queue=-1)


def test_the_bytes_of_a_group_with_a_member() -> None:
    """The group within is a map by field name, whatever kind of class it is."""
    member = SavedMember("m-1", "m", "c", "h", 10_000, 60_000, (("range", b"x"),), b"y")
    record = control.GroupSaved(GroupRecord("g", 4, "consumer", "range", "m-1", True, (member,), 1), 10)
    group = {
        "group": "g",
        "generation": 4,
        "protocol_type": "consumer",
        "protocol": "range",
        "leader": "m-1",
        "settled": True,
        "static_members": [
            {
                "member_id": "m-1",
                "instance_id": "m",
                "client_id": "c",
                "client_host": "h",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 60_000,
                "protocols": [["range", b"x"]],
                "assignment": b"y",
            }
        ],
        "dynamic_members": 1,
    }
    assert control.encode(record) == msgspec.msgpack.encode(["group", group, 10])
    assert control.decode(control.encode(record)) == record


def test_an_older_record_lacks_the_newest_fields() -> None:
    older = b"\x96\xa5topic\x01\xa1t\xc4\x01i\x02\x80"
    assert control.decode(older) == control.TopicCreated(1, "t", b"i", 2, {}, False, None)


def test_a_newer_record_of_a_known_kind_has_more_fields() -> None:
    assert control.decode(b"\x93\xadtopic-deleted\x07\xa3new") == control.TopicDeleted(7)


@pytest.mark.parametrize("payload", [b"", b"\x91\xa7unknown", b"\x92\xaapartitions\x07", b"\xc1", b"\x07"])
def test_what_is_no_record_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        control.decode(payload)
