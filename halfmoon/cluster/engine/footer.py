"""What stands in an object: pieces of shards, one after the other, and a footer that says which.

        0   frames of the pieces
        …   footer: msgpack, [node, pieces], each piece [shard, epoch, start, end, crc, segment, at]
      −16   length of the footer, 4 bytes
      −12   CRC-32C of the footer, 4 bytes
       −8   magic "HMobject"

Little-endian. The database lists the same pieces; the footer is there for the case that the database is lost, and to
tell whether an object that is there is the one that was to be stored.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from halfmoon.cluster.engine.database import Commit
from halfmoon.cluster.engine.pieces import Piece
from halfmoon.core.crc import crc32c
from halfmoon.errors import HalfmoonError

MAGIC: Final = b"HMobject"
_TRAILER: Final = struct.Struct("<II8s")
TRAILER_BYTES: Final = _TRAILER.size


class FooterError(HalfmoonError):
    """These bytes do not end with a footer."""


class _Listed(msgspec.Struct, array_like=True):
    shard: int
    epoch: int
    start: int
    end: int
    crc: int
    segment: int
    at: int


class _Footer(msgspec.Struct, array_like=True):
    node: int
    pieces: list[_Listed]


_footer = msgspec.msgpack.Decoder(_Footer)


def build(
    node: int, key: str, commits: Sequence[Commit], frames: Sequence[Sequence[memoryview | bytes]]
) -> tuple[bytes, list[Commit]]:
    """An object, and the commits as the object has them: each piece with its key and its place. `frames`: one for each
    piece of each commit."""
    parts: list[memoryview | bytes] = []
    listed: list[_Listed] = []
    placed, at = [], 0
    for commit, datas in zip(commits, frames, strict=True):
        pieces = []
        for piece, data in zip(commit.pieces, datas, strict=True):
            assert len(data) == piece.size
            parts.append(data)
            pieces.append(piece._replace(key=key, at=at))
            listed.append(_Listed(commit.shard, commit.epoch, piece.start, piece.end, piece.crc, piece.segment, at))
            at += piece.size
        placed.append(commit._replace(pieces=tuple(pieces)))
    return b"".join([*parts, *_end(node, listed)]), placed


def build_shared(
    node: int, key: str, commits: Sequence[Commit], frames: memoryview | bytes
) -> tuple[bytes, list[Commit]]:
    """An object that several shards have in common: the one piece of each commit is these frames."""
    placed = [commit._replace(pieces=(commit.pieces[0]._replace(key=key, at=0),)) for commit in commits]
    listed = [
        _Listed(commit.shard, commit.epoch, piece.start, piece.end, piece.crc, piece.segment, 0)
        for commit in placed
        for piece in commit.pieces
    ]
    return b"".join([frames, *_end(node, listed)]), placed


def _end(node: int, listed: list[_Listed]) -> list[bytes]:
    footer = msgspec.msgpack.encode(_Footer(node, listed))
    return [footer, _TRAILER.pack(len(footer), crc32c(footer), MAGIC)]


def footer_bytes(trailer: bytes) -> int:
    """How long the footer is that stands before these last TRAILER_BYTES of an object. Raises FooterError."""
    if len(trailer) != TRAILER_BYTES:
        raise FooterError(f"the object ends after {len(trailer)} bytes")
    length, _, magic = _TRAILER.unpack(trailer)
    if magic != MAGIC:
        raise FooterError("the object ends with something else than a footer")
    return int(length)


def read(tail: bytes, key: str) -> tuple[int, list[Commit]]:
    """The node that wrote it, and what it holds. `tail`: the object from the footer on. Raises FooterError."""
    length, crc, _ = _TRAILER.unpack(tail[-TRAILER_BYTES:])
    encoded = tail[-TRAILER_BYTES - length : -TRAILER_BYTES]
    if len(encoded) != length or crc32c(encoded) != crc:
        raise FooterError("the footer is damaged")
    try:
        footer = _footer.decode(encoded)
    except msgspec.MsgspecError as error:
        raise FooterError(f"the footer is not what this program writes: {error}") from error
    commits: dict[tuple[int, int], list[Piece]] = {}
    for one in footer.pieces:
        piece = Piece(one.start, one.end, one.crc, one.segment, key, one.at)
        commits.setdefault((one.shard, one.epoch), []).append(piece)
    return footer.node, [Commit(shard, epoch, tuple(pieces)) for (shard, epoch), pieces in commits.items()]
