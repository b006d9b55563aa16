"""Runs the transcripts of `transcripts/share_*.txt`: a command, `----`, and exactly what the share partition said.

    HALFMOON_REWRITE=1 pytest tests/services/share/test_share_transcripts.py   rewrites them; read the diff

Commands (the time goes on with `tick` only; locks last 30 s):
    new [start=0] [limit=5] [locks=2000] [letters=yes] [renew=yes]      a share partition
    acquire MEMBER BATCHES [most=500] [batch=500] [exactly]             BATCHES: 0-9,10-19 of the log
    ack MEMBER FIRST-LAST:TYPES …                                       a accept, g gap, r release, x reject, n renew
    release MEMBER      tick MS      pass FIRST-LAST         written FIRST-LAST      drop OFFSET
    wanted MOST                                                         where to read for so many records
    crash                                                               what is written down, taken up again
"""

from __future__ import annotations

from pathlib import Path

from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError
from halfmoon.services.share.delivery_state import STATE_NAMES, DeliveryState, Saved
from halfmoon.services.share.share_partition import Acknowledgement, Demand, Extent, SharePartition, Terms, stretches_of
from tests.transcript import check, transcripts

TYPES = "garxn"


def span(text: str) -> tuple[int, int]:
    """`3-5` or `3` → the offsets [3, 6)."""
    first, _, last = text.partition("-")
    return int(first), int(last or first) + 1


def told(first: int, end: int) -> str:
    return str(first) if end == first + 1 else f"{first}-{end - 1}"


class Script:
    def __init__(self) -> None:
        self.now_ms = 0
        self.begin({})

    def begin(self, given: dict[str, str]) -> None:
        self.terms = Terms(
            count_limit=int(given.get("limit", 5)), max_locks=int(given.get("locks", 2000)),
            dead_letters=given.get("letters", "yes") == "yes", renew=given.get("renew", "yes") == "yes",
        )  # fmt: skip
        self.part = SharePartition(int(given.get("start", 0)))
        self.kept = DeliveryState(self.part.start)

    def run(self, line: str) -> str:
        command, *words = line.split()
        given = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        try:
            said = getattr(self, f"do_{command}")(plain, given)
        except BrokerError as error:
            said = error.fault.name
        return "\n".join(filter(None, [said, self.shown()]))

    def shown(self) -> str:
        runs = [
            f"{told(run.first, run.end)} {STATE_NAMES[run.state]}{f' #{run.deliveries}' if run.deliveries else ''}"
            f"{f' {run.member} until {run.deadline_ms}' if run.member else ''}"
            for run in self.part.runs
        ]
        return "\n".join([f"start {self.part.start}", *(f"  {run}" for run in runs)])

    def written(self, changed: list[Saved]) -> str:
        if changed:
            self.kept.put(changed)
            self.kept.begin_at(self.part.start)
        return "\n".join(
            f"write {told(first, end)} {STATE_NAMES[state]}{f' #{count}' if count else ''}"
            for first, end, state, count in changed
        )

    def do_new(self, plain: list[str], given: dict[str, str]) -> str:
        self.begin(given)
        return ""

    def do_acquire(self, plain: list[str], given: dict[str, str]) -> str:
        batches = [Extent(*span(text)) for text in plain[1].split(",")]
        demand = Demand(int(given.get("most", 500)), int(given.get("batch", 500)), "exactly" in plain)
        found = self.part.acquire(plain[0], batches, demand, self.terms, self.now_ms)
        return "\n".join(f"gets {told(*each[:2])} #{each.deliveries}" for each in found) or "gets nothing"

    def do_ack(self, plain: list[str], given: dict[str, str]) -> str:
        batches = []
        for word in plain[1:]:
            offsets, _, types = word.partition(":")
            first, end = span(offsets)
            batches.append(Acknowledgement(first, end - 1, [TYPES.index(kind) for kind in types]))
        said = finish(stretches_of(batches, self.terms))
        return self.written(self.part.acknowledge(plain[0], said, self.terms, self.now_ms))

    def do_release(self, plain: list[str], given: dict[str, str]) -> str:
        return self.written(self.part.release(plain[0], self.terms))

    def do_tick(self, plain: list[str], given: dict[str, str]) -> str:
        self.now_ms += int(plain[0])
        return self.written(self.part.expire(self.terms, self.now_ms))

    def do_pass(self, plain: list[str], given: dict[str, str]) -> str:
        self.part.pass_over([Extent(*span(plain[0]))])
        return ""

    def do_written(self, plain: list[str], given: dict[str, str]) -> str:
        self.part.dead_letters_written([Extent(*span(plain[0]))])
        return ""

    def do_drop(self, plain: list[str], given: dict[str, str]) -> str:
        lost = self.part.drop_below(int(plain[0]))
        return f"{lost} letters lost" if lost else ""

    def do_wanted(self, plain: list[str], given: dict[str, str]) -> str:
        wanted = self.part.wanted(int(plain[0]), self.terms.max_locks)
        return "reads nothing" if wanted is None else f"reads {told(*wanted)}"

    def do_crash(self, plain: list[str], given: dict[str, str]) -> str:
        self.part = SharePartition(self.kept.start, self.kept.saved())
        return ""


@transcripts("share", __file__)
def test_transcript(path: Path) -> None:
    script = Script()
    check(path, lambda line: script.run(line).splitlines())
