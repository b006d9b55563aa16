"""Batches that no broker should store: by class, with the code that Kafka answers.

The codes are those of Kafka's LogValidator (validateBatch, validateRecord), DefaultRecord.readFrom,
DefaultRecordBatch.RecordIterator, ByteBufferLogInputStream.nextBatchSize, ProduceRequest.validateRecords and
UnifiedLog.analyzeAndValidateRecords. Where Kafka is less exact, a comment says so.
"""

from __future__ import annotations

import struct

import pytest
from kafka_rig import Rig, batch
from test_api_00_produce import fields, results, values

from halfmoon.core.records import record_codec, walk
from halfmoon.core.records.batch_header import BatchHeader, assemble, parse_header
from halfmoon.core.records.batches import build_batch
from halfmoon.core.records.compression import compress

CORRUPT, TOO_LARGE, TIMESTAMP, UNKNOWN_CODEC, INVALID = 2, 10, 32, 76, 87
FORMS = ["python", "compiled"] if walk.load_compiled() is not None else ["python"]
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
GOOD = parse_header(build_batch([(b"k", b"v", 1000, ())]))


def number(value):
    output = bytearray()
    record_codec.put_varint(output, value)
    return bytes(output)


def record(offset=0, *, length=None, timestamp=b"\0", delta=None, key=b"\2k", value=b"\2v", headers=b"\0"):
    """One record from its parts as bytes; `length` as a number, the right one by default."""
    content = b"\0" + timestamp + (number(offset) if delta is None else delta) + key + value + headers
    return number(len(content) if length is None else length) + content


def made(codec, *records, count=None, **header):
    """A whole batch with a right checksum, whatever else it says."""
    count = len(records) if count is None else count
    said = {"record_count": count, "last_offset_delta": count - 1, "attributes": codec} | header
    body = b"".join(records)
    return assemble(BatchHeader._replace(GOOD, **said), compress(codec, body))


def framed(codec, **parts):
    """A good batch with bytes of its framing overwritten."""
    data = bytearray(made(codec, record()))
    for at, form, value in parts.values():
        struct.pack_into(form, data, at, value)
    return bytes(data)


HEADERS = {
    "record count of 2^31 - 1": (lambda codec: made(codec, record(), count=2**31 - 1), INVALID),
    "record count of 0": (lambda codec: made(codec, record(), count=0), INVALID),
    "negative record count": (lambda codec: made(codec, record(), count=-5), INVALID),
    "count and last offset delta differ": (lambda codec: made(codec, record(), last_offset_delta=7), INVALID),
    "last offset delta of 2^31 - 1": (lambda codec: made(codec, record(), last_offset_delta=2**31 - 1), INVALID),
    "negative last offset delta": (lambda codec: made(codec, record(), last_offset_delta=-1), INVALID),
    "no records": (lambda codec: assemble(GOOD._replace(attributes=codec), b""), INVALID),
    "control batch": (lambda codec: made(codec, record(), attributes=codec | 32), INVALID),
    # Kafka corrects the type where the topic's is CreateTime.
    "LogAppendTime from a producer": (lambda codec: made(codec, record(), attributes=codec | 8), TIMESTAMP),
    "producer without sequence": (lambda codec: made(codec, record(), producer_id=5, producer_epoch=0), INVALID),
    # Kafka: UNKNOWN_SERVER_ERROR (CompressionType.forId).
    "unknown codec": (lambda codec: made(codec, record(), attributes=codec | 7), UNKNOWN_CODEC),
    "wrong checksum": (lambda codec: framed(codec, crc=(17, ">I", 1)), CORRUPT),
    "format 0": (lambda codec: framed(codec, magic=(16, ">b", 0)), INVALID),
    "format 1": (lambda codec: framed(codec, magic=(16, ">b", 1)), INVALID),
    "format 3": (lambda codec: framed(codec, magic=(16, ">b", 3)), CORRUPT),
    "negative format": (lambda codec: framed(codec, magic=(16, ">b", -1)), CORRUPT),
    "negative batch length": (lambda codec: framed(codec, length=(8, ">i", -1)), CORRUPT),
    "batch length below its header's": (lambda codec: framed(codec, length=(8, ">i", 20)), CORRUPT),
    "batch length beyond the request": (lambda codec: framed(codec, length=(8, ">i", 2**31 - 1)), INVALID),
    "cut short": (lambda codec: made(codec, record())[:-1], INVALID),
    "an empty batch": (lambda codec: b"", INVALID),
    "a few bytes": (lambda codec: b"halfmoon", INVALID),
    "two batches": (lambda codec: made(codec, record()) * 2, INVALID),
    # Kafka cuts them off and takes the batch.
    "bytes behind the batch": (lambda codec: made(codec, record()) + b"\0" * 5, INVALID),
    "larger than max.message.bytes": (lambda codec: assemble(GOOD._replace(attributes=codec), bytes(5000)), TOO_LARGE),
}
"""What the header alone shows: refused whatever `log.validate` says."""

RECORDS = {
    "one record more than there is": (lambda codec: made(codec, record(), record(1), count=3), INVALID),
    "one record less than there is": (lambda codec: made(codec, record(), record(1), count=1), INVALID),
    "record length too long": (lambda codec: made(codec, record(length=99)), INVALID),
    "record length too short": (lambda codec: made(codec, record(length=7)), INVALID),
    "negative record length": (lambda codec: made(codec, record(length=-9)), INVALID),
    "record length of 2^31 - 1": (lambda codec: made(codec, record(length=2**31 - 1)), INVALID),
    "record length in six bytes": (lambda codec: made(codec, b"\x80" * 5 + b"\0" + record()), INVALID),
    # Kafka takes these two without compression.
    "offset deltas 2, 1, 0": (lambda codec: made(codec, record(2), record(1), record(0)), INVALID),
    "the same offset delta twice": (lambda codec: made(codec, record(0), record(0)), INVALID),
    "offset delta in six bytes": (lambda codec: made(codec, record(delta=b"\x80" * 5 + b"\0")), INVALID),
    "timestamp delta in eleven bytes": (lambda codec: made(codec, record(timestamp=b"\x80" * 10 + b"\0")), INVALID),
    "timestamp beyond 64 bits": (
        lambda codec: made(codec, record(timestamp=number(2**62)), base_timestamp=2**63 - 1),
        INVALID,
    ),
    # Kafka takes every negative length of keys and values for null.
    "key of length -2": (lambda codec: made(codec, record(key=number(-2))), INVALID),
    "value of length -2": (lambda codec: made(codec, record(value=number(-2))), INVALID),
    "key reaches beyond the record": (lambda codec: made(codec, record(key=number(99) + b"k")), INVALID),
    "value reaches beyond the record": (lambda codec: made(codec, record(value=number(2**31 - 1))), INVALID),
    "negative header count": (lambda codec: made(codec, record(headers=number(-1))), INVALID),
    "header count of 2^31 - 1": (lambda codec: made(codec, record(headers=number(2**31 - 1))), INVALID),
    "header without a key": (lambda codec: made(codec, record(headers=number(1) + number(-1) + b"\1")), INVALID),
    "header value beyond": (lambda codec: made(codec, record(headers=number(1) + b"\2h" + number(50))), INVALID),
    "bytes behind the last record": (lambda codec: made(codec, record(), b"\0\0\0", count=1), INVALID),
    "bytes inside a record": (lambda codec: made(codec, record(headers=b"\0\0\0")), INVALID),
    "records of zeros": (lambda codec: made(codec, bytes(70), count=10), INVALID),
}
"""What only a look at each record shows."""

COMPRESSED = {
    # Kafka: UNKNOWN_SERVER_ERROR, which clients do not retry either.
    "compressed garbage": lambda codec: assemble(GOOD._replace(attributes=codec), b"\xde\xad\xbe\xef" * 9),
    "compressed records cut short": lambda codec: assemble(
        GOOD._replace(attributes=codec), compress(codec, record(value=number(60) + bytes(range(60))))[:-5]
    ),
    "not compressed at all": lambda codec: assemble(GOOD._replace(attributes=codec), record()),
}


def check(rig, bad, expected):
    """The batch is refused, and nothing of it is left: the next one has offset 0, and is read."""
    (partition,) = rig.topic("t", 1, max_message_bytes="4000")
    client = rig.client()
    (refused,) = [results(client.ask(0, 9, **fields((0, bad))))[0]]
    assert refused == (0, expected, -1, -1, -1)
    assert results(client.ask(0, 9, **fields((0, batch(b"good")))))[0] == (0, 0, 0, -1, 0)
    assert values(rig, partition) == [b"good"]
    assert sum(rig.broker.refused_batches.values()) == 1


@pytest.fixture(params=FORMS)
def form(request, monkeypatch):
    compiled = None if request.param == "python" else walk.load_compiled()
    monkeypatch.setattr(walk, "walk_compiled", compiled)
    return request.param


@pytest.mark.parametrize("mode", ["header", "records"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("case", HEADERS)
def test_what_the_header_shows_is_always_refused(mode, codec, case):
    make, expected = HEADERS[case]
    check(Rig(log__validate=mode), make(CODECS[codec]), expected)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("case", RECORDS)
def test_what_a_record_shows_is_refused(form, codec, case):
    make, expected = RECORDS[case]
    check(Rig(), make(CODECS[codec]), expected)


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
@pytest.mark.parametrize("case", COMPRESSED)
def test_what_does_not_decompress_is_refused(form, codec, case):
    check(Rig(topics__headers=False), COMPRESSED[case](CODECS[codec]), INVALID)


def test_a_record_without_a_key_is_refused_where_topics_are_compacted(form):
    for mode in ("header", "records"):
        rig = Rig(log__validate=mode)
        rig.topic("t", 1, cleanup_policy="compact")
        bad = made(0, record(), record(1, key=b"\1"))
        assert results(rig.client().ask(0, 9, **fields((0, bad))))[0][1] == INVALID


@pytest.mark.parametrize("version", [7, 8, 9, 12])
def test_the_records_without_a_key_are_named(form, version):
    """KIP-467: a client may send the others again, and need not guess."""
    rig = Rig()
    rig.topic("t", 1, cleanup_policy="compact")
    bad = made(0, record(key=b"\1"), record(1), record(2, key=b"\1"))
    (part,) = rig.client().ask(0, version, **fields((0, bad))).responses[0].partition_responses
    assert part.error_code == INVALID
    if version >= 8:
        assert [(each.batch_index, each.batch_index_error_message) for each in part.record_errors] == [
            (0, None), (2, None)
        ]  # fmt: skip
        assert "record 0 of the batch has no key (as 2 in all)" in part.error_message


def bomb(codec):
    """Records that take 80 MiB, in some hundred KiB: one record, whose value is zeros."""
    size = 80 << 20
    body = record(value=number(size) + bytes(size))
    return assemble(GOOD._replace(attributes=codec), compress(codec, body))


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_a_bomb_is_refused(form, codec):
    """Also where nobody looks for headers, and in its own time."""
    rig = Rig(topics__headers=False, topics__max_message_bytes="16MiB")
    rig.topic("t")
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, bomb(CODECS[codec])))))
    rig.turns()
    ((_, error, *_),) = [results(answer)[0] for answer in client.answers()]
    assert error == INVALID
