"""What clients wrote down, compared with what is stored: each check returns what is wrong, a sentence each.

A line of a history is a time (monotonic ns) and words, the first of which says what happened. What was sent, and is
neither acknowledged nor refused, has an unknown outcome: it may be there or not, but not twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

Line = tuple[int, list[str]]
Partitions = Sequence[Sequence["Record"]]
"""What a topic holds."""
MOST = 5
"""So many examples of what is wrong are told."""
SLACK_MS = 2
"""Both ends round a time."""


class Record(Struct, frozen=True):
    offset: int
    value: str
    timestamp_ms: int = 0
    headers: dict[str, str] = {}


def lines_of(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return sorted((int(line.split()[0]), line.split()[1:]) for line in path.read_text().splitlines())


def values_of(stored: Partitions) -> Counter[str]:
    return Counter(record.value for part in stored for record in part)


def _some(what: str, found: Iterable[object]) -> list[str]:
    all_of = sorted(map(str, found))
    if not all_of:
        return []
    return [f"{len(all_of)} {what}: " + ", ".join(all_of[:MOST])]


def check_sent(lines: Sequence[Line], stored: Partitions, *, once: bool = True) -> list[str]:
    """Of producers. `once`: they are idempotent, so nothing is there twice, and what each sends is in order."""
    sent = {what[1] for _, what in lines if what[0] == "sent"}
    acked = {(what[1], int(what[2]), _offset(what[3])) for _, what in lines if what[0] == "acked"}
    places = {(record.value, index, record.offset) for index, part in enumerate(stored) for record in part}
    places |= {(value, index, None) for value, index, _ in places}
    there = values_of(stored)
    found = _some("fatal errors of producers", (what[1:] for _, what in lines if what[0] == "fatal"))
    found += _some("acknowledged and not at the offset that was told", acked - places)
    found += _some("stored and sent by nobody", set(there) - sent)
    if once:
        found += _some("stored more than once", (value for value, count in there.items() if count > 1))
        found += _some("out of order", _out_of_order(stored))
    return found


def _offset(told: str) -> int | None:
    """librdkafka tells none of a batch that it takes for stored since a later one is."""
    return None if told == "None" else int(told)


def _out_of_order(stored: Partitions) -> list[str]:
    """Values are SENDER/NUMBER, or SENDER/NUMBER/…"""
    found = []
    for index, part in enumerate(stored):
        last: dict[str, int] = {}
        for record in part:
            sender, number = record.value.split("/")[:2]
            if int(number) < last.get(sender, -1):
                found.append(f"{record.value} behind {last[sender]} in partition {index}")
            last[sender] = int(number)
    return found


def check_offsets(stored: Partitions) -> list[str]:
    """They rise."""
    found = []
    for index, part in enumerate(stored):
        offsets = [record.offset for record in part]
        if any(after <= before for before, after in pairwise(offsets)):
            found.append(f"offsets of partition {index} do not rise")
    return found


def check_transactions(lines: Sequence[Line], committed: Partitions, everything: Partitions) -> list[str]:
    """`begun NAME COUNT`, `committed NAME`, `aborted NAME`; values are NAME/INDEX, and NAME is SENDER/NUMBER.
    `committed`, `everything`: as readers of committed records and as others see it."""
    counts = {what[1]: int(what[2]) for _, what in lines if what[0] == "begun"}
    told = {kind: {what[1] for _, what in lines if what[0] == kind} for kind in ("committed", "aborted")}
    there = values_of(committed)
    whole = Counter(value.rpartition("/")[0] for value in there)
    found = _some("stored more than once", (value for value, count in values_of(everything).items() if count > 1))
    found += _some("transactions that nobody has begun", set(whole) - set(counts))
    found += _some("committed transactions that are not there", told["committed"] - set(whole))
    found += _some("aborted transactions that are seen", told["aborted"] & set(whole))
    found += _some("half transactions", (name for name, count in whole.items() if count != counts.get(name, count)))
    return found + _some("out of order", _out_of_order(committed))


def check_pipeline(jobs: Partitions, results: Partitions) -> list[str]:
    """Read-process-write: each job has one result, in the partition of its own, in its order."""
    found = []
    for index, (part, made) in enumerate(zip(jobs, results, strict=True)):
        wanted, got = [record.value for record in part], [record.value for record in made]
        if wanted != got:
            missing, more = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
            what = _some("without a result", missing.elements()) + _some("results too many", more.elements())
            found.append(f"partition {index}: " + ("; ".join(what) or "results are out of order"))
    return found


def check_group(lines: Sequence[Line], jobs: Partitions) -> list[str]:
    """A group: nobody begins before what was committed, and nothing is passed over.

    `begins PARTITION OFFSET ASKED_NS`, `got PARTITION OFFSET`, `committed PARTITION OFFSET`."""
    committed: dict[str, list[tuple[int, int]]] = defaultdict(list)
    got: dict[str, set[int]] = defaultdict(set)
    found = []
    for at_ns, what in lines:
        if what[0] == "committed":
            committed[what[1]].append((at_ns, int(what[2])))
        elif what[0] == "got":
            got[what[1]].add(int(what[2]))
    for _, what in lines:
        if what[0] == "begins":
            before = max((each for at_ns, each in committed[what[1]] if at_ns < int(what[3])), default=0)
            if int(what[2]) < before:
                found.append(f"partition {what[1]} begins at {what[2]}, {before} was committed")
    for index, part in enumerate(jobs):
        missing = {record.offset for record in part} - got[str(index)]
        found += _some(f"of partition {index} passed over", missing)
    return found


def highest_commits(lines: Sequence[Line]) -> dict[int, int]:
    """By partition, the highest offset whose commit was acknowledged."""
    found: dict[int, int] = {}
    for _, what in lines:
        if what[0] == "committed":
            found[int(what[1])] = max(found.get(int(what[1]), 0), int(what[2]))
    return found


def check_share(lines: Sequence[Line], jobs: Partitions) -> list[str]:
    """A share group: what was accepted or rejected is given to nobody again, and everything is in the end.

    `given PARTITION OFFSET ASKED_NS`, `accepted PARTITION OFFSET`, `rejected PARTITION OFFSET`."""
    settled: dict[tuple[int, int], int] = {}
    given = []
    for at_ns, what in lines:
        if what[0] in ("accepted", "rejected"):
            settled.setdefault((int(what[1]), int(what[2])), at_ns)
        elif what[0] == "given":
            given.append(((int(what[1]), int(what[2])), int(what[3])))
    again = {place for place, asked_ns in given if asked_ns >= settled.get(place, asked_ns + 1)}
    found = _some("settled, and given out again", again)
    # Of what was accepted by somebody who was killed before hearing of it, nobody knows.
    missing = places_of(jobs) - set(settled) - {place for place, _ in given}
    return found + _some("given to nobody", missing)


def places_of(stored: Partitions) -> set[tuple[int, int]]:
    return {(index, record.offset) for index, part in enumerate(stored) for record in part}


def check_delays(lines: Sequence[Line], stored: Partitions) -> list[str]:
    """`delayed VALUE PARTITION WALL_MS DELAY_MS`, `acked VALUE`. A record's timestamp is the time of its delivery."""
    due_ms = {what[1]: int(what[3]) + int(what[4]) for _, what in lines if what[0] == "delayed"}
    where = {what[1]: int(what[2]) for _, what in lines if what[0] == "delayed"}
    acked = {what[1] for _, what in lines if what[0] == "acked"}
    there = values_of(stored)
    found = _some("delayed, acknowledged and not delivered", acked - set(there))
    found += _some("delivered more than once", (value for value, count in there.items() if count > 1))
    found += _some("delivered and sent by nobody", set(there) - set(due_ms))
    for index, part in enumerate(stored):
        for record in part:
            if record.timestamp_ms + SLACK_MS < due_ms.get(record.value, 0):
                found.append(f"{record.value}: {due_ms[record.value] - record.timestamp_ms} ms early")
            if where.get(record.value, index) != index:
                found.append(f"{record.value}: in partition {index}")
    return found


def check_halves(lines: Sequence[Line], stored: Partitions, rule: Callable[[str], str] | None = None) -> list[str]:
    """`prepared VALUE`: the half message is stored; `decides STATE VALUE`, `decided STATE VALUE`: its end is sent, is
    stored. `rule`: what becomes of a value, where somebody who knows it answers check-backs."""
    prepared = {what[1] for _, what in lines if what[0] == "prepared"}
    told = {state: {what[2] for _, what in lines if what[:2] == ["decided", state]} for state in ("commit", "rollback")}
    tried = {what[2] for _, what in lines if what[:2] == ["decides", "commit"]}
    there = values_of(stored)
    found = _some("committed and not delivered", told["commit"] - set(there))
    found += _some("delivered and not committed", set(there) - tried)
    found += _some("delivered after their rollback", set(there) & told["rollback"])
    found += _some("delivered more than once", (value for value, count in there.items() if count > 1))
    if rule is not None:
        wanted = {value for value in prepared if rule(value) == "commit"}
        found += _some("prepared, to be committed, and not delivered", wanted - set(there) - told["commit"])
    return found


def check_nacks(lines: Sequence[Line], stored: Partitions, wants: Callable[[str], int]) -> list[str]:
    """`nacks VALUE TIMES`, `nacked VALUE TIMES`: the negative acknowledgement by which it has so many is sent, stored.
    `stored`: what came again. `wants`: how often a value is nacked in all. Whoever cannot commit what it has nacked
    gets it once more, and nacks it again: each is delivered as often as it was nacked, at most."""
    nacked = {(what[1], int(what[2])) for _, what in lines if what[0] == "nacked"}
    tried = Counter((what[1], int(what[2])) for _, what in lines if what[0] == "nacks")
    there = Counter((record.value, int(record.headers.get("RECONSUME_TIME", 0))) for part in stored for record in part)
    found = _some("nacked and not delivered again", nacked - set(there))
    found += _some("delivered again and nacked by nobody", set(there) - set(tried))
    found += _some("delivered again too many times", (each for each, count in there.items() if count > tried[each] > 0))
    return found + _some("delivered again too often", (each for each in there if each[1] > wants(each[0])))


def check_taken(lines: Sequence[Line], stored: Partitions) -> list[str]:
    """RocketMQ's producers and consumers: `sent VALUE`, `stored VALUE`, `took VALUE`. At least once, all of it."""
    told = {kind: {what[1] for _, what in lines if what[0] == kind} for kind in ("sent", "stored", "took")}
    there = set(values_of(stored))
    found = _some("acknowledged and not there", told["stored"] - there)
    found += _some("stored and sent by nobody", there - told["sent"])
    return found + _some("stored and taken by nobody", there - told["took"])


def check_ends(ends: Mapping[tuple[str, int], tuple[int, int]]) -> list[str]:
    """By topic and partition, the high watermark and the last stable offset."""
    return _some(
        "partitions with an open transaction",
        (f"{topic}-{index}: {stable} of {high}" for (topic, index), (high, stable) in ends.items() if high != stable),
    )


def check_same(name: str, before: Mapping[str, Partitions], after: Mapping[str, Partitions]) -> list[str]:
    """What was read twice. More may have come, nothing else."""
    found = []
    for topic, parts in before.items():
        for index, part in enumerate(parts):
            again = list(after[topic][index])[: len(part)]
            if again != list(part):
                pairs = zip(part, [*again, *[None] * len(part)], strict=False)
                was, now = next(pair for pair in pairs if pair[0] != pair[1])
                found.append(f"{name}: {topic}-{index} is not what it was: {now} in the place of {was}")
    return found


def hit_in_flight(lines: Iterable[Line], killed_ns: int, partitions: Iterable[int]) -> int:
    """So many records of `sent VALUE PARTITION` to these partitions had no answer at that time."""
    wanted = set(partitions)
    sent: dict[str, int] = {}
    ended: dict[str, int] = {}
    for at_ns, what in lines:
        if what[0] == "sent" and int(what[2]) in wanted:
            sent[what[1]] = at_ns
        elif what[0] in ("acked", "failed"):
            ended[what[1]] = at_ns
    return sum(1 for value, at_ns in sent.items() if at_ns < killed_ns < ended.get(value, killed_ns + 1))
