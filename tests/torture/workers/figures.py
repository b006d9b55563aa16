"""What is told of a run: how much was done, and how long who waited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tests.torture.histories import Line

SOON_NS = 500_000_000
"""A record that is sent so soon after a kill is still one that meets it."""
STARTING = 200
"""So many first records of a producer are not counted: they wait for its own start."""
APART_NS = 2_500_000_000
"""So far apart are faults of which one can tell which made somebody wait, …"""
ANEW_NS = 10_000_000_000
"""… and so long after all have begun anew, or one was paused."""


class Fault(Struct, frozen=True):
    at_ns: int
    kind: str
    """`kill`, `pause`, `crash` (of all), `restart`."""
    workers: tuple[int, ...]
    """Those whom it struck."""
    count: int
    """So many there were."""


class Waits(Struct, frozen=True):
    """The longest time from a kill, or the sending after it, to the answer, for each kill, ms. Of records that met one
    fault."""

    killed: list[float]
    """Of records to partitions of a killed worker."""
    others: list[float]
    """Of records to the others', where nothing else had happened."""


def waits(
    lines: Iterable[Line],
    faults: Sequence[Fault],
    owners: Mapping[int, Sequence[int]],
    *,
    starting: int = STARTING,
) -> Waits:
    """`lines`: of producers; values are SENDER/NUMBER. `owners`: number of workers → by partition, whose it is."""
    sent: dict[str, tuple[int, int]] = {}
    took: list[tuple[int, int, int]] = []
    for at_ns, what in lines:
        if what[0] == "sent":
            sent[what[1]] = at_ns, int(what[2])
        elif what[0] == "acked" and int(what[1].rpartition("/")[2]) >= starting:
            took.append((*sent[what[1]], at_ns))
    found = Waits([], [])
    for fault in faults:
        if fault.kind != "kill":
            continue
        alone = not any(each is not fault and _is_near(each, fault) for each in faults)
        of = owners[fault.count]
        more = [each for each in faults if each is not fault]
        met = [
            (of[index] in fault.workers, end_ns - max(sent_ns, fault.at_ns))
            for sent_ns, index, end_ns in took
            if sent_ns < fault.at_ns + SOON_NS and end_ns > fault.at_ns
            and not any(of[index] in each.workers and sent_ns - APART_NS < each.at_ns < end_ns for each in more)
        ]  # fmt: skip
        for is_killed, longest in ((True, found.killed), (False, found.others)):
            times = [took_ns for whose, took_ns in met if whose is is_killed]
            if times and (is_killed or alone):
                longest.append(round(max(times) / 1e6, 1))
    return found


def _is_near(other: Fault, fault: Fault) -> bool:
    before_ns = APART_NS if other.kind == "kill" else ANEW_NS
    return fault.at_ns - before_ns < other.at_ns < fault.at_ns + APART_NS


def operations(histories: Mapping[str, Sequence[Line]]) -> dict[str, int]:
    """By role and what it was told."""
    counts: Counter[str] = Counter()
    for role, lines in histories.items():
        for _, what in lines:
            counts[f"{role}.{what[0]}"] += 1
    return dict(sorted(counts.items()))
