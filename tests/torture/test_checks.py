"""The checks of histories find what is wrong, each kind of it, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.torture import histories
from tests.torture.crew import is_stuck
from tests.torture.histories import Line, Record
from tests.torture.worker import decision
from tests.torture.workers.figures import Fault, operations, waits

Parts = list[list[Record]]


def history(text: str) -> list[Line]:
    """A line each, a nanosecond apart."""
    return [(number, line.split()) for number, line in enumerate(text.strip().splitlines())]


def topic(*parts: str) -> Parts:
    """Values, with their offsets where they are not 0, 1, 2, …: `a b@7`."""
    found: Parts = []
    for part in parts:
        records: list[Record] = []
        for word in part.split():
            value, _, offset = word.partition("@")
            records.append(Record(int(offset or len(records)), value))
        found.append(records)
    return found


def test_a_history_is_read_in_the_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "feed.history"
    assert histories.lines_of(path) == []
    path.write_text("20 acked a/0 0 3\n10 sent a/0 0\n")
    assert histories.lines_of(path) == [(10, ["sent", "a/0", "0"]), (20, ["acked", "a/0", "0", "3"])]


# -- producers ---------------------------------------------------------------------------------------------------------

SENT = history("""
sent a/0 0
acked a/0 0 0
sent b/0 0
sent a/1 0
acked a/1 0 2
sent a/2 1
failed a/2
sent a/3 1
""")


@pytest.mark.parametrize(
    ("stored", "wrong"),
    [
        (topic("a/0 b/0 a/1", ""), None),
        (topic("a/0 b/0 a/1", "a/2 a/3"), None),
        (topic("a/0 b/0", ""), "1 acknowledged and not at the offset that was told: ('a/1', 0, 2)"),
        (topic("a/0 b/0 a/1@3", ""), "1 acknowledged and not at the offset that was told: ('a/1', 0, 2)"),
        (topic("a/0 b/0", "a/1@2"), "1 acknowledged and not at the offset that was told: ('a/1', 0, 2)"),
        (topic("a/0 b/0 a/1 a/1", ""), "1 stored more than once: a/1"),
        (topic("a/0 b/0 a/1", "a/3 a/2"), "1 out of order: a/2 behind 3 in partition 1"),
        (topic("a/0 b/0 a/1 c/0", ""), "1 stored and sent by nobody: c/0"),
    ],
)
def test_producers(stored: Parts, wrong: str | None) -> None:
    assert histories.check_sent(SENT, stored) == ([] if wrong is None else [wrong])


def test_what_is_taken_for_stored_is_there_wherever_that_is() -> None:
    lines = [*SENT, (99, ["acked", "a/3", "1", "None"])]
    assert histories.check_sent(lines, topic("a/0 b/0 a/1", "a/3")) == []
    (wrong,) = histories.check_sent(lines, topic("a/0 b/0 a/1", ""))
    assert wrong == "1 acknowledged and not at the offset that was told: ('a/3', 1, None)"


def test_what_is_not_idempotent_may_be_there_twice() -> None:
    assert histories.check_sent(SENT, topic("a/0 b/0 a/1 a/1 a/0", ""), once=False) == []
    (wrong,) = histories.check_sent(SENT, topic("a/0 b/0", ""), once=False)
    assert "acknowledged" in wrong


def test_an_idempotent_producer_never_fails_for_good() -> None:
    lines = [*SENT, (99, ["fatal", "OUT_OF_ORDER_SEQUENCE_NUMBER"])]
    (wrong,) = histories.check_sent(lines, topic("a/0 b/0 a/1", ""))
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in wrong


def test_offsets_rise() -> None:
    assert histories.check_offsets(topic("a b@5", "c")) == []
    assert histories.check_offsets(topic("a", "b c@0")) == ["offsets of partition 1 do not rise"]


# -- transactions ------------------------------------------------------------------------------------------------------

BANK = history("""
begun x/0 2
committed x/0
begun x/1 1
aborted x/1
begun x/2 2
""")


@pytest.mark.parametrize(
    ("committed", "everything", "wrong"),
    [
        (topic("x/0/0", "x/0/1"), topic("x/0/0 x/1/0", "x/0/1"), None),
        (topic("x/0/0 x/2/0", "x/0/1 x/2/1"), None, None),
        (topic("", ""), None, "1 committed transactions that are not there: x/0"),
        (topic("x/0/0", ""), None, "1 half transactions: x/0"),
        (topic("x/0/0", "x/0/1 x/2/1"), None, "1 half transactions: x/2"),
        (topic("x/0/0 x/1/0", "x/0/1"), None, "1 aborted transactions that are seen: x/1"),
        (topic("x/0/0", "x/0/1"), topic("x/0/0 x/0/0", "x/0/1"), "1 stored more than once: x/0/0"),
        (topic("x/2/0 x/0/0", "x/0/1 x/2/1"), None, "1 out of order: x/0/0 behind 2 in partition 0"),
        (topic("x/0/0 y/0/0", "x/0/1"), None, "1 transactions that nobody has begun: y/0"),
    ],
)
def test_transactions(committed: Parts, everything: Parts | None, wrong: str | None) -> None:
    found = histories.check_transactions(BANK, committed, everything or committed)
    assert found == ([] if wrong is None else [wrong])


@pytest.mark.parametrize(
    ("results", "wrong"),
    [
        (topic("a b", "c"), None),
        (topic("a", "c"), "partition 0: 1 without a result: b"),
        (topic("a b b", "c"), "partition 0: 1 results too many: b"),
        (topic("b a", "c"), "partition 0: results are out of order"),
    ],
)
def test_read_process_write(results: Parts, wrong: str | None) -> None:
    assert histories.check_pipeline(topic("a b", "c"), results) == ([] if wrong is None else [wrong])


def test_nothing_stays_open() -> None:
    assert histories.check_ends({("jobs", 0): (7, 7)}) == []
    assert histories.check_ends({("jobs", 0): (7, 7), ("jobs", 1): (9, 4)}) == [
        "1 partitions with an open transaction: jobs-1: 4 of 9"
    ]


# -- groups ------------------------------------------------------------------------------------------------------------


def test_groups() -> None:
    jobs = topic("a b c")
    lines = history("begins 0 0 0\ngot 0 0\ngot 0 1\ncommitted 0 2\nbegins 0 2 4\ngot 0 2")
    assert histories.check_group(lines, jobs) == []
    assert histories.highest_commits(lines) == {0: 2}
    assert histories.check_group(lines[:-1], jobs) == ["1 of partition 0 passed over: 2"]
    back = [*lines, (9, ["begins", "0", "1", "8"])]
    assert histories.check_group(back, jobs) == ["partition 0 begins at 1, 2 was committed"]
    at_once = [*lines, (9, ["begins", "0", "1", "3"])]  # asked when the commit was not answered yet
    assert histories.check_group(at_once, jobs) == []


@pytest.mark.parametrize("kind", ["accepted", "rejected"])
def test_share_groups(kind: str) -> None:
    jobs = topic("a b")
    lines = history(f"given 0 0 0\n{kind} 0 0\ngiven 0 1 1\nreleased 0 1\ngiven 0 1 4\naccepted 0 1")
    assert histories.check_share(lines, jobs) == []
    again = [*lines, (7, ["given", "0", "0", "6"])]
    assert histories.check_share(again, jobs) == ["1 settled, and given out again: (0, 0)"]
    assert histories.check_share(lines[:2], jobs) == ["1 given to nobody: (0, 1)"]


# -- features ----------------------------------------------------------------------------------------------------------


def test_delays() -> None:
    lines = history("delayed a 0 1000 500\nacked a\ndelayed b 0 1000 100")

    def stored(*found: tuple[str, int]) -> Parts:
        return [[Record(n, value, at_ms) for n, (value, at_ms) in enumerate(found)], []]

    def check(found: Parts) -> list[str]:
        return histories.check_delays(lines, found)

    assert check(stored(("a", 1500))) == check(stored(("b", 1100), ("a", 1700))) == []
    assert check(stored()) == ["1 delayed, acknowledged and not delivered: a"]
    assert check(stored(("a", 1500), ("a", 1500))) == ["1 delivered more than once: a"]
    assert check(stored(("a", 1400))) == ["a: 100 ms early"]
    assert check(stored(("a", 1500), ("c", 1500))) == ["1 delivered and sent by nobody: c"]
    assert check(stored(("a", 1500))[::-1]) == ["a: in partition 1"]


def test_half_messages() -> None:
    lines = history("""
    prepared a/1
    decides commit a/1
    decided commit a/1
    decides rollback a/3
    decided rollback a/3
    prepared a/2
    """)
    check: Callable[[Parts], list[str]] = lambda stored: histories.check_halves(lines, stored)  # noqa: E731
    assert check(topic("a/1")) == []
    assert check(topic("")) == ["1 committed and not delivered: a/1"]
    assert check(topic("a/1 a/1")) == ["1 delivered more than once: a/1"]
    assert "1 delivered after their rollback: a/3" in check(topic("a/1 a/3"))
    assert check(topic("a/1 a/2")) == ["1 delivered and not committed: a/2"]
    asked = histories.check_halves(lines, topic("a/1"), decision)
    assert asked == ["1 prepared, to be committed, and not delivered: a/2"]


def test_what_is_taken() -> None:
    lines = history("sent a\nstored a\nsent b\ntook a\ntook a")
    assert histories.check_taken(lines, topic("a a")) == []
    assert histories.check_taken(lines, topic("")) == ["1 acknowledged and not there: a"]
    assert histories.check_taken(lines, topic("a b")) == ["1 stored and taken by nobody: b"]
    assert "1 stored and sent by nobody: c" in histories.check_taken(lines, topic("a c"))


def test_negative_acknowledgements() -> None:
    lines = history("nacks a 1\nnacked a 1\nnacks b 1\nnacks c 1\nnacked c 1\nnacks c 1\nnacked c 1")
    twice = ("c", 1), ("c", 1)  # by a consumer that could not commit the first, or was replaced meanwhile

    def check(*found: tuple[str, int]) -> list[str]:
        records = [Record(n, value, headers={"RECONSUME_TIME": str(times)}) for n, (value, times) in enumerate(found)]
        return histories.check_nacks(lines, [records], lambda _: 1)

    assert check(("a", 1), *twice) == check(("a", 1), ("b", 1), *twice) == []
    assert check(*twice) == ["1 nacked and not delivered again: ('a', 1)"]
    assert check(("a", 1), ("a", 1), *twice) == ["1 delivered again too many times: ('a', 1)"]
    assert check(("a", 1), *twice, *twice) == ["1 delivered again too many times: ('c', 1)"]
    assert check(("a", 1), ("a", 2), *twice) == [
        "1 delivered again and nacked by nobody: ('a', 2)", "1 delivered again too often: ('a', 2)",
    ]  # fmt: skip


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_what_is_read_again_is_the_same() -> None:
    before = {"jobs": topic("a b")}
    assert histories.check_same("5 workers", before, {"jobs": topic("a b c")}) == []
    for after in ("a", "a c", "a b@7", ""):
        (wrong,) = histories.check_same("5 workers", before, {"jobs": topic(after)})
        assert wrong.startswith("5 workers: jobs-0 is not what it was")


@pytest.mark.parametrize(
    ("killed_ns", "partitions", "count"), [(0, [0], 0), (5, [0], 0), (1, [1], 0), (8, [1], 1), (9, [1], 1)]
)
def test_a_kill_meets_what_was_not_answered(killed_ns: int, partitions: Sequence[int], count: int) -> None:
    lines = [(at_ns, what) for at_ns, what in SENT if what[1] != "b/0"]
    assert histories.hit_in_flight(lines, killed_ns, partitions) == count


MS = 1_000_000


def test_waits_are_told_apart_by_whose_partition_it_was() -> None:
    def record(value: str, index: int, sent_ms: int, acked_ms: int) -> list[Line]:
        return [(sent_ms * MS, ["sent", value, str(index)]), (acked_ms * MS, ["acked", value, str(index), "0"])]

    lines = sorted(
        record("a/0", 0, 99, 101) + record("b/1", 0, 200, 1_700) + record("c/2", 1, 90, 130) + record("d/3", 1, 1, 9)
    )
    fault = Fault(100 * MS, "kill", (0,), 2)
    owners = {2: [0, 1]}
    found = waits(lines, [fault], owners, starting=0)
    assert (found.killed, found.others) == ([1_500.0], [30.0])
    found = waits(lines, [fault, Fault(900 * MS, "pause", (1,), 2)], owners, starting=0)
    assert (found.killed, found.others) == ([1_500.0], [])
    found = waits(lines, [fault, Fault(900 * MS, "kill", (0,), 2)], owners, starting=0)
    assert (found.killed, found.others) == ([1.0], [])
    found = waits(lines, [fault, Fault(-4_000 * MS, "kill", (0,), 2)], owners, starting=0)
    assert found.others == [30.0]
    found = waits(lines, [fault, Fault(-4_000 * MS, "crash", (0, 1), 2)], owners, starting=0)
    assert found.others == []
    assert waits(lines, [fault], owners, starting=2).others == [30.0]
    assert waits(lines, [fault], owners, starting=3).others == []
    assert operations({"feed": lines}) == {"feed.acked": 4, "feed.sent": 4}


def test_a_client_that_waits_for_itself_is_known_by_the_last_that_it_tells(tmp_path: Path) -> None:
    """librdkafka's issue 5476; other threads go on."""
    failed = "OffsetForLeaderEpoch requested failed: Local: Broker handle destroyed without termination"
    last = f"%7|9.1|OFFSETVALID|rdkafka#consumer-2| [thrd:main]: t [5]: {failed}"
    others = (
        "%4|9.5|REQTMOUT|rdkafka#consumer-2| [thrd:GroupCoordinator]: timed out",
        "%7|9.6|METADATA|rdkafka#producer-1| [thrd:main]: 1/1 requested",
    )
    log = tmp_path / "log"
    log.write_text("\n".join((last, *others)))
    assert is_stuck(log)
    log.write_text("\n".join((last, *others, "%7|9.7|METADATA|rdkafka#consumer-2| [thrd:main]: 1/1 requested")))
    assert not is_stuck(log)
