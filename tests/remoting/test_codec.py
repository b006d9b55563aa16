"""The codec against bytes that RocketMQ's own classes have made (vectors.json), and frames as they went over the wire
between RocketMQ 5.3.3 and its Java client (wire-sample.jsonl)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.to_records import Message, batched
from halfmoon.hooks.java_hash import string_hash
from halfmoon.remoting import command as wire
from halfmoon.remoting import message, properties
from halfmoon.remoting.command import JSON, ROCKETMQ, Command
from halfmoon.remoting.errors import MalformedFrame
from halfmoon.remoting.message import BatchedMessage, Host, StoredMessage

HERE = Path(__file__).parent
VECTORS: dict[str, Any] = json.loads((HERE / "vectors.json").read_text())
SAMPLE: list[dict[str, Any]] = [json.loads(line) for line in (HERE / "wire-sample.jsonl").read_text().splitlines()]


def vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name])


def decode(frame: bytes) -> Command:
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    return wire.decode(memoryview(frame)[4:])


def as_sent(messages: Iterable[Message]) -> list[BatchedMessage]:
    return [BatchedMessage(each.flag, bytes(each.body), each.properties) for each in messages]


class TestVectors:
    @pytest.mark.parametrize(
        ("kind", "name"), [(JSON, "sendMessageV2FrameJSON"), (ROCKETMQ, "sendMessageV2FrameROCKETMQ")]
    )
    def test_a_frame(self, kind: int, name: str) -> None:
        frame = vector(name)
        command = decode(frame)
        assert (command.code, command.opaque, command.kind, bytes(command.body)) == (310, 42, kind, b"hello")
        assert (command.language, command.version, command.flag, command.remark) == ("JAVA", 0, 0, None)
        assert command.fields["i"] == "KEYS\x01k1 k2\x02région\x01杭州\x02e\x01\x02"
        assert wire.encode(command) == frame

    def test_both_frames_say_the_same(self) -> None:
        first, second = decode(vector("sendMessageV2FrameJSON")), decode(vector("sendMessageV2FrameROCKETMQ"))
        assert first.fields == second.fields

    def test_a_stored_message(self) -> None:
        data = vector("storedMessageHex")
        (stored,) = message.decode_stored(data)
        assert (stored.queue_id, stored.flag, stored.queue_offset, stored.physical_offset) == (2, 7, 11, 4096)
        assert (stored.body, stored.topic, stored.reconsume_times) == (b"hello", b"TopicTest", 1)
        assert (str(stored.born), str(stored.store)) == ("127.0.0.1:54321", "127.0.0.1:10911")
        assert (stored.born_ms, stored.store_ms) == (1_700_000_000_000, 1_700_000_000_001)
        assert dict(properties.decode(stored.properties)) == {b"a": b"b", b"TAGS": b"TagA"}
        assert message.encode_stored(stored) == data
        assert stored.message_id == VECTORS["offsetMsgId"]

    def test_a_message_id(self) -> None:
        store, physical = message.decode_message_id(VECTORS["offsetMsgId"])
        assert (str(store), physical) == ("127.0.0.1:10911", 4096)
        assert message.message_id(store, physical) == VECTORS["offsetMsgId"]

    def test_a_batch(self) -> None:
        data = vector("batchBodyHex")
        messages = list(batched(data))
        assert [each.body for each in messages] == [b"b1", b"b2"]
        assert dict(properties.decode(messages[1].properties)) == {b"WAIT": b"true", b"TAGS": b"TagB"}
        assert (
            message.encode_batch([BatchedMessage(each.flag, bytes(each.body), each.properties) for each in messages])
            == data
        )

    def test_properties(self) -> None:
        data = vector("propertiesHex")
        assert {name.decode(): value.decode() for name, value in properties.decode(data)} == VECTORS[
            "propertiesDecoded"
        ]
        kept = list(properties.decode(data))
        assert properties.encode(kept) == data.removesuffix(b"e\x01\x02")

    def test_tag_codes(self) -> None:
        assert {tag: string_hash(tag) for tag in VECTORS["tagHash"]} == VECTORS["tagHash"]


class TestWireSample:
    """The sample has the fields of headers, not their bytes; so a header's bytes are made as RocketMQ makes them, by
    other means than ours, where that is canonical: everywhere but in the order of a Java map's fields."""

    @pytest.mark.parametrize("line", range(len(SAMPLE)))
    def test_a_frame_is_read_and_written_again(self, line: int) -> None:
        said = SAMPLE[line]
        body = said.get("text", "").encode()
        frame = _json_frame(said, body) if said["ser"] == "JSON" else _rocketmq_frame(said, body)
        command = decode(frame)
        assert (command.code, command.flag, command.opaque) == (said["code"], said["flag"], said["opaque"])
        assert (command.language, command.version, command.remark) == (
            said["language"],
            said["version"],
            said["remark"],
        )
        assert command.fields == said["ext"]
        assert bytes(command.body) == body
        assert wire.encode(command) == frame


def _json_frame(said: dict[str, Any], body: bytes) -> bytes:
    header = {
        "code": said["code"], "extFields": said["ext"], "flag": said["flag"], "language": said["language"],
        "opaque": said["opaque"], "remark": said["remark"], "serializeTypeCurrentRPC": "JSON",
        "version": said["version"],
    }  # fmt: skip
    if said["remark"] is None:
        del header["remark"]
    if said["flag"] & 1 and not said["ext"]:
        del header["extFields"]
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


def _rocketmq_frame(said: dict[str, Any], body: bytes) -> bytes:
    fields = b""
    for name, value in said["ext"].items():
        fields += struct.pack(">h", len(name)) + name.encode()
        fields += struct.pack(">i", len(value.encode())) + value.encode()
    remark = (said["remark"] or "").encode()
    header = struct.pack(">hbhii", said["code"], 0, said["version"], said["opaque"], said["flag"])
    header += struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(fields)) + fields
    return struct.pack(">iI", 4 + len(header) + len(body), 1 << 24 | len(header)) + header + body


texts = st.text(st.characters(codec="utf-8"), max_size=30)
commands = st.builds(
    Command,
    code=st.integers(0, 32_767),
    opaque=st.integers(0, 2**31 - 1),
    flag=st.integers(0, 3),
    version=st.integers(0, 32_767),
    language=st.sampled_from(wire.LANGUAGES),
    remark=st.none() | texts.filter(bool),
    fields=st.dictionaries(texts, texts, max_size=5),
    body=st.binary(max_size=50),
    kind=st.sampled_from([JSON, ROCKETMQ]),
)


@given(commands)
def test_what_is_written_is_read(command: Command) -> None:
    assert decode(wire.encode(command)) == command


@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_malformed(data: bytes) -> None:
    for mark in (b"", struct.pack(">I", len(data)), struct.pack(">I", 1 << 24 | max(0, len(data) - 3))):
        try:
            wire.decode(memoryview(mark + data))
        except MalformedFrame:
            pass


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"\0\0", "a frame of 2 bytes"),
        (struct.pack(">I", 100) + b"{}", "a header of 100 bytes in a frame of 6"),
        (struct.pack(">I", 2 << 24), "a header of type 2"),
        (struct.pack(">I", 2) + b"{}", "a JSON header that is none"),
        (struct.pack(">I", 4) + b"\xff\xff\xff\xff", "a JSON header that is none"),
        (struct.pack(">I", 1 << 24 | 3) + b"abc", "the header ends within a field"),
        (struct.pack(">IhBhiii", 1 << 24 | 21, 10, 0, 0, 0, 0, -1) + bytes(4), "a text of -1 bytes"),
        (struct.pack(">IhBhiii", 1 << 24 | 21, 10, 0, 0, 0, 0, 0) + struct.pack(">i", 9), "fields of 9 bytes where 0"),
    ],
)
def test_what_is_no_frame_is_said(frame: bytes, reason: str) -> None:
    with pytest.raises(MalformedFrame, match=reason):
        wire.decode(memoryview(frame))


def test_a_header_as_large_as_a_frame_is_refused() -> None:
    size = wire.MAX_HEADER_BYTES + 1
    with pytest.raises(MalformedFrame, match="at most"):
        wire.decode(memoryview(struct.pack(">I", size) + b" " * size))


def test_null_fields_are_left_out() -> None:
    header = b'{"code":34,"extFields":{"a":null,"b":"1"},"flag":0,"opaque":7}'
    command = wire.decode(memoryview(struct.pack(">I", len(header)) + header))
    assert (command.fields, command.opaque, command.language) == ({"b": "1"}, 7, "OTHER")


hosts = st.builds(Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, 65_535))
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
stored_messages = st.builds(
    StoredMessage,
    queue_id=int32, flag=int32, queue_offset=int64, physical_offset=int64, system_flags=st.integers(0, 15),
    born_ms=int64, born=hosts, store_ms=int64, store=hosts, reconsume_times=int32, prepared_offset=int64,
    body=st.binary(max_size=40), topic=st.binary(max_size=255), properties=st.binary(max_size=40),
)  # fmt: skip


@given(st.lists(stored_messages, max_size=3))
def test_stored_messages_are_read_as_they_were_written(messages: list[StoredMessage]) -> None:
    data = b"".join(map(message.encode_stored, messages))
    read = [each._replace(system_flags=each.system_flags & 15) for each in message.decode_stored(data)]
    assert read == messages


@given(stored_messages, st.integers(0, 200), st.integers(0, 255))
def test_a_broken_stored_message_is_malformed_or_another(stored: StoredMessage, at: int, value: int) -> None:
    data = bytearray(message.encode_stored(stored))
    data[at % len(data)] = value
    try:
        list(message.decode_stored(bytes(data)))
    except MalformedFrame:
        pass


batched_messages = st.builds(BatchedMessage, flag=int32, body=st.binary(max_size=40), properties=st.binary(max_size=40))


@given(st.lists(batched_messages, max_size=4))
def test_batches_are_read_as_they_were_written(messages: list[BatchedMessage]) -> None:
    read = [
        BatchedMessage(each.flag, bytes(each.body), each.properties) for each in batched(message.encode_batch(messages))
    ]
    assert read == messages


@given(st.binary(max_size=100))
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    try:
        list(batched(data))
    except Refused:
        pass


@given(st.integers(0, message.MAX_QUEUE_NUMBER), st.integers(0, message.MAX_OFFSET), hosts)
def test_a_message_id_leads_back(queue_number: int, offset: int, store: Host) -> None:
    physical = message.physical_offset(queue_number, offset)
    assert 0 <= physical < 2**63
    text = message.message_id(store, physical)
    assert len(text) == (56 if store.is_v6 else 32)
    assert message.decode_message_id(text) == (store, physical)
    assert message.place_of(physical) == (queue_number, offset)


@pytest.mark.parametrize("text", ["", "xy", "00" * 15, "7F00000100002A9F00000000000010", "00" * 29])
def test_what_is_no_message_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"message id|fromhex"):
        message.decode_message_id(text)


def test_hosts_that_are_no_address_are_nowhere() -> None:
    assert str(Host.parse("broker.example", 10911)) == "0.0.0.0:10911"
    assert str(Host.parse("::1", 9)) == "[::1]:9"
    assert str(Host.parse("fe80::1%eth0", 9)) == "[fe80::1]:9"


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.binary(min_size=1, max_size=9))))
def test_writable_properties_are_read_as_they_are(pairs: list[tuple[bytes, bytes]]) -> None:
    kept = [pair for pair in pairs if properties.is_writable(*pair)]
    assert list(properties.decode(properties.encode(kept))) == kept
