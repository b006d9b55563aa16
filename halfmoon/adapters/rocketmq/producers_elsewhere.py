"""Producers that are connected to other shards: each shard tells the others of its own, and has them asked there.

A producer registers with the brokers that it sends to. Its half messages may wait in a shard to which none of its group
is connected any more, since the one that sent them is gone.
"""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.adapters.rocketmq.shards import Producers

AGAIN_MS = 10_000
"""A group is told of again after so long, at the next heartbeat."""


class ProducersElsewhere:
    def __init__(self, port: Producers | None, timeout_ms: int, mono_ms: Callable[[], int]) -> None:
        """`port`: None where there is one shard. `timeout_ms`: a shard that has told of a group has it for so long."""
        self._port = port
        self._timeout_ms = timeout_ms
        self._mono_ms = mono_ms
        self._told: dict[str, int] = {}
        """Groups that the others were told of, and when they are told again."""
        self._shards: dict[str, dict[int, int]] = {}
        """Group → shards that have producers of it → until when. Who was asked last comes last."""

    def tell(self, group: str) -> None:
        """Producers of the group are connected here."""
        now_ms = self._mono_ms()
        if self._port is not None and now_ms >= self._told.get(group, now_ms):
            self._told[group] = now_ms + AGAIN_MS
            self._port.tell(group)

    def seen(self, group: str, shard: int) -> None:
        """A shard has told of the group."""
        self._shards.setdefault(group, {})[shard] = self._mono_ms() + self._timeout_ms

    def put_off(self, by_ms: int) -> None:
        """The clock has leapt, which is nobody's silence."""
        for shards in self._shards.values():
            for shard in shards:
                shards[shard] += by_ms

    def has(self, group: str) -> bool:
        return bool(self._of(group))

    def ask(self, group: str, messages: bytes) -> None:
        """Have one of the shards, each in turn, ask a producer about half messages (as `encode_stored` writes them)."""
        shards = self._of(group)
        if shards:
            self._ask(group, messages, shards)

    def expire(self) -> None:
        now_ms = self._mono_ms()
        for group in [group for group in self._shards if not self._of(group)]:
            del self._shards[group]
        for group in [group for group, again_ms in self._told.items() if again_ms <= now_ms]:
            del self._told[group]

    def _of(self, group: str) -> list[int]:
        now_ms = self._mono_ms()
        return [shard for shard, until_ms in self._shards.get(group, {}).items() if now_ms < until_ms]

    def _ask(self, group: str, messages: bytes, shards: list[int]) -> None:
        shard, others = shards[0], shards[1:]
        known = self._shards.get(group, {})
        if shard in known:
            known[shard] = known.pop(shard)

        def told(was_asked: bool) -> None:
            if not was_asked:
                self._shards.get(group, {}).pop(shard, None)
                if others:
                    self._ask(group, messages, others)

        assert self._port is not None
        self._port.ask(shard, group, messages, told)
