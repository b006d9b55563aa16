"""What the outside world knows: what was sent, what was acknowledged, and what any reader has ever seen.

Each value is sent to one place of the model only, so a value says where it belongs. `Violation` is a broken promise.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from msgspec import Struct, field


class Violation(AssertionError):  # noqa: N818
    """A promise that was not kept."""


Place = tuple[str, int]
"""Topic and partition."""


def short(value: bytes | None) -> str:
    """A value's name: what stands before its filler."""
    return "none" if value is None else value.partition(b" ")[0].decode()


class Sent(Struct):
    """One value, and what is known of it."""

    place: Place
    """Where readers are to find it."""
    sender: str = ""
    number: int = 0
    """Those of a sender are in order in a partition, where `ordered`."""
    ordered: bool = True
    acked: bool = False
    wanted: bool | None = True
    """Whether it is to be there in the end; None where nobody can know."""
    not_before_s: float = 0.0
    """Of the loop's time: it is delivered no sooner."""
    has_offset: bool = True
    """The acknowledgement says its offset; it does not of what is delivered later."""
    tag: str = ""
    key: bytes | None = None


class Model(Struct):
    sent: dict[bytes, Sent] = field(default_factory=dict)
    seen: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """What readers have seen, by offset: it stays like that."""
    acked: dict[Place, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    ends: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    """The end offset is not below this any more."""
    starts: dict[Place, int] = field(default_factory=lambda: defaultdict(int))
    """Records below were asked to be deleted."""
    compacted: set[str] = field(default_factory=set)
    """Topics of which records may vanish where a later one has the key."""
    counts: Counter[str] = field(default_factory=Counter)
    """What happened, for the report."""

    def stored(self, place: Place, base: int, values: list[bytes | None]) -> None:
        """A batch is acknowledged, with this base offset; −1 where it has none."""
        for at, value in enumerate(values):
            if not value:
                continue
            sent = self.sent[value]
            sent.acked = True
            if base >= 0 and sent.has_offset:
                known = self.seen[place].get(base + at, value)
                if known != value:
                    raise Violation(f"{place} @{base + at}: {short(value)} was acknowledged, {short(known)} was read")
                other = self.acked[place].setdefault(base + at, value)
                if other != value:
                    raise Violation(f"{place} @{base + at}: both {short(other)} and {short(value)} were acknowledged")
                self.ends[place] = max(self.ends[place], base + at + 1)
        self.counts["acknowledged"] += len(values)

    def read(self, place: Place, offset: int, value: bytes, now_s: float) -> None:
        """A reader got this."""
        known = self.seen[place].setdefault(offset, value)
        if known != value:
            raise Violation(f"{place} @{offset}: {short(known)} was read before, now it is {short(value)}")
        acked = self.acked[place].get(offset, value)
        if acked != value:
            raise Violation(f"{place} @{offset}: {short(acked)} was acknowledged, {short(value)} is there")
        sent = self.sent.get(value)
        if sent is None:
            raise Violation(f"{place} @{offset}: {short(value)} was never sent")
        if now_s < sent.not_before_s:
            raise Violation(f"{place} @{offset}: {short(value)} came {sent.not_before_s - now_s:.3f} s too soon")

    def end(self, place: Place, end: int, known: int) -> None:
        """A reader was told the high watermark; `known`: what `ends` said when it asked."""
        if end < known:
            raise Violation(f"{place}: its end is {end}, and was {known}")
        self.ends[place] = max(self.ends[place], end)
