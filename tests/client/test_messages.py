"""Messages as bytes: what the client reads is what the codec says, and quicker."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.client.messages import Message, encode_properties, read_messages
from halfmoon.plugin import Queue
from halfmoon.remoting import properties
from halfmoon.remoting.errors import MalformedFrame
from halfmoon.remoting.message import COMPRESSED, Host, StoredMessage, decode_stored, encode_stored

Q = Queue("t", "b", 3)
HOSTS = [Host(bytes([127, 0, 0, 1]), 10_911), Host(bytes(range(16)), 1)]

int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
stored = st.builds(
    StoredMessage, queue_id=int32, flag=int32, queue_offset=int64, physical_offset=int64,
    system_flags=st.sampled_from([0, 4, 8, 2]), born_ms=int64, born=st.sampled_from(HOSTS), store_ms=int64,
    store=st.sampled_from(HOSTS), reconsume_times=int32, prepared_offset=int64, body=st.binary(max_size=200),
    topic=st.text("abcü", min_size=1, max_size=150).map(str.encode), properties=st.binary(max_size=100),
)  # fmt: skip


@given(st.lists(stored, max_size=5))
def test_what_is_read_is_what_was_stored(messages: list[StoredMessage]) -> None:
    data = b"".join(map(encode_stored, messages))
    found = read_messages(memoryview(data), Q)
    assert list(decode_stored(data)) == [
        StoredMessage(
            expected.queue_id, each.flag, each.queue_offset, each.physical_offset, expected.system_flags, each.born_ms,
            each.born_host, each.store_ms, each.store_host, each.reconsume_times, each.prepared_offset, each.body,
            each.topic.encode(), each._text,
        )
        for each, expected in zip(found, decode_stored(data), strict=True)
    ]  # fmt: skip
    assert all(each.queue is Q for each in found)


@given(stored, st.data())
def test_bytes_that_are_none_are_said_so(message: StoredMessage, data: st.DataObject) -> None:
    whole = bytearray(encode_stored(message))
    if data.draw(st.booleans()):
        whole = whole[: data.draw(st.integers(1, len(whole) - 1))]
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] ^= data.draw(st.integers(1, 255))
    try:
        found = read_messages(bytes(whole), Q)
    except MalformedFrame:
        return
    assert len(found) <= 1


@pytest.mark.parametrize(
    ("flags", "compress"),
    [
        (0x301, zlib.compress), (0x001, zlib.compress), (0x101, lz4.frame.compress),
        (0x201, zstandard.ZstdCompressor().compress),
    ],
    ids=["zlib", "old zlib", "lz4", "zstd"],
)  # fmt: skip
def test_bodies_are_plain_again(flags: int, compress: object) -> None:
    assert callable(compress)
    body = b"a body " * 1_000

    def message(packed: bytes) -> bytes:
        return encode_stored(
            StoredMessage(0, 0, 0, 0, flags, 0, HOSTS[0], 0, HOSTS[0], 0, 0, packed, b"t", b"")
        )  # fmt: skip

    (found,) = read_messages(message(compress(body)), Q)
    assert found.body == body
    assert not found.system_flags & COMPRESSED
    for broken in (b"garbage", compress(body)[:-5]):
        (found,) = read_messages(message(broken), Q)
        assert (found.body, found.system_flags) == (broken, flags), "one producer's mistake stops nobody's queue"


texts = st.text(st.characters(exclude_characters="\1\2", exclude_categories=("Cs",)), min_size=1, max_size=20)


@given(st.dictionaries(texts, texts, max_size=5), texts, st.lists(st.text("abc", min_size=1), max_size=3))
def test_properties_are_read_as_they_were_written(own: dict[str, str], tag: str, keys: list[str]) -> None:
    own = {f"p{name}": value for name, value in own.items()}
    text = encode_properties(Message("t", b"x", tags=tag, keys=keys, properties=own), "UNIQUE", {"PGROUP": "g"})
    found = {name.decode(): value.decode() for name, value in properties.decode(text.encode())}
    expected = {"UNIQ_KEY": "UNIQUE", "WAIT": "true", "TAGS": tag, "PGROUP": "g", **own}
    assert found == expected | ({"KEYS": " ".join(keys)} if keys else {})


def test_a_message_says_what_it_is() -> None:
    text = b"UNIQ_KEY\1u\2TAGS\1a\2KEYS\1k1  k2\2"
    data = encode_stored(StoredMessage(3, 0, 7, 1 << 40, 0, 0, HOSTS[0], 0, HOSTS[0], 0, 0, b"body", b"t", text))
    (message,) = read_messages(data, Q)
    assert (message.tags, message.keys, message.message_id) == ("a", ["k1", "k2"], "u")
    assert message.offset_message_id == "7F00000100002A9F" + f"{1 << 40:016X}"
    assert repr(message) == "<t/3[7] 4 bytes>"
