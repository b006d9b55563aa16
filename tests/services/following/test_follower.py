"""A dispatcher is shown every batch once, when it is durable: also after kill −9 and after a power cut."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from halfmoon.services.following import saved as files
from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from tests.core.bench import VirtualClock, flip, open_broker, partition_of, relay, send, sync, turn
from tests.services.following.bench import Notebook, follow, is_whole, opened
from tests.services.transactions.transaction_bench import TxnClient

PATH = files.path_of("mine", "notes")


def disk(seed: int = 1) -> FaultyFileSystem:
    return FaultyFileSystem(random.Random(seed))


def test_every_batch_is_shown_once_with_what_it_holds() -> None:
    seen: list[list[bytes | None]] = []
    notes = Notebook()
    take = notes.on_batches

    def on_batches(batches: object) -> None:
        take(batches)
        for each in batches:  # type: ignore[attr-defined]
            seen.append([record.value for record in each.records()])
            assert (each.record_count, each.relayed, each.internal, each.transactional) == (
                len(seen[-1]), False, False, False,
            )  # fmt: skip
            assert each.store_ms == broker.clock.wall_ms()

    notes.on_batches = on_batches  # type: ignore[method-assign]
    broker, _ = opened(disk(), notes)
    broker.create_topic("orders", 2)
    send(broker, "orders", b"a", b"b")
    send(broker, "orders", b"c", index=1)
    relay(broker)
    send(broker, "orders", b"d")
    relay(broker)
    assert notes.rows == [("orders", 0, 0, 2, False), ("orders", 1, 0, 1, False), ("orders", 0, 2, 3, False)]
    assert seen == [[b"a", b"b"], [b"c"], [b"d"]]
    assert notes.restored == [None]


def test_what_is_not_on_disk_yet_is_not_shown() -> None:
    notes = Notebook()
    broker, _ = opened(disk(), notes, flush="interval")
    broker.create_topic("orders", 1)
    relay(broker)
    send(broker, "orders", b"a")
    broker.write()
    broker.settle()
    assert partition_of(broker, "orders").high_watermark == 1
    broker.housekeeping.turn()  # wakes it, to save
    while broker.relays.has_work:
        loading = broker.relays.step()
        if loading is not None:
            loading.loaded(loading.load())
    assert notes.rows == []
    relay(broker)
    assert notes.of("orders") == [(0, 1)]


def test_relayed_batches_are_shown_too() -> None:
    notes = Notebook()
    broker, _ = opened(disk(), notes)
    broker.create_topic("orders", 1)
    broker.create_topic("paid", -1, {"halfmoon.view.source": "orders", "halfmoon.view.prefix": "p"})
    send(broker, "orders", b"p1", b"x", b"p2")
    relay(broker)
    relay(broker)
    assert notes.of("orders") == [(0, 3)]
    assert notes.of("paid") == [(0, 2)]
    assert is_whole(broker, notes, "paid")


def test_a_new_dispatcher_begins_with_the_oldest_that_is_stored() -> None:
    fs = disk()
    broker = open_broker(fs, VirtualClock())
    broker.create_topic("orders", 1)
    for number in range(500):
        send(broker, "orders", b"%d" % number, b"x" * 500)
        turn(broker)
    assert len(broker.log.segments) > 3
    notes = Notebook()
    follow(broker, notes)
    relay(broker)
    assert len(notes.of("orders")) == 500
    assert is_whole(broker, notes, "orders")


def test_batches_of_deleted_topics_are_not_shown() -> None:
    broker = open_broker(disk(), VirtualClock())
    broker.create_topic("orders", 1)
    broker.create_topic("gone", 1)
    send(broker, "gone", b"a")
    send(broker, "orders", b"b")
    found = broker.topic("gone")
    assert found is not None
    broker.delete_topic(found)
    turn(broker)
    notes = Notebook()
    follow(broker, notes)
    relay(broker)
    assert notes.rows == [("orders", 0, 0, 1, False)]


def test_state_and_position_are_saved_together_and_taken_up() -> None:
    fs = disk()
    notes = Notebook()
    broker, following = opened(fs, notes)
    broker.create_topic("orders", 1)
    send(broker, "orders", b"a")
    relay(broker)
    broker.housekeeping.turn()
    relay(broker)
    assert notes.checkpoints == 1
    state = notes.checkpoint()
    send(broker, "orders", b"b")
    relay(broker)
    assert notes.of("orders") == [(0, 1), (1, 2)]
    again = Notebook()
    broker, following = opened(fs.kill(), again)
    relay(broker)
    assert again.restored == [state]
    assert again.of("orders") == [(0, 1), (1, 2)]
    following.stop()
    broker.close()
    last = Notebook()
    broker, following = opened(broker.fs, last)  # type: ignore[arg-type]
    assert last.of("orders") == [(0, 1), (1, 2)]
    assert following.feature().warnings() == []  # type: ignore[misc]


def test_nothing_is_saved_where_nothing_has_come() -> None:
    notes = Notebook()
    broker, _ = opened(disk(), notes)
    broker.create_topic("orders", 1)
    relay(broker)
    for _ in range(3):
        broker.housekeeping.turn()
        relay(broker)
    assert notes.checkpoints == 1


# ------------------------------------------------------------------------------------------------------ transactions


def transactional() -> tuple[FaultyFileSystem, Notebook]:
    return disk(), Notebook()


def test_a_transaction_is_shown_when_it_has_ended() -> None:
    fs, notes = transactional()
    broker, _ = opened(fs, notes)
    broker.create_topic("orders", 2)
    one, two = TxnClient(broker, "one"), TxnClient(broker, "two")
    one.init()
    two.init()
    one.send("orders", b"a")
    two.send("orders", b"b")
    send(broker, "orders", b"c")
    send(broker, "orders", b"d", index=1)
    relay(broker)
    assert notes.rows == [("orders", 1, 0, 1, False)]
    two.abort()
    relay(broker)
    assert notes.of("orders") == []
    one.commit()
    relay(broker)
    marks = [(base, aborted) for topic, index, base, _, aborted in notes.rows if index == 0]
    assert marks == [(0, False), (1, True), (2, False), (3, False), (4, False)]
    assert is_whole(broker, notes, "orders")
    send(broker, "orders", b"e")
    relay(broker)
    assert is_whole(broker, notes, "orders")


def test_part_of_what_waits_is_shown_when_a_transaction_ends_before_another() -> None:
    fs, notes = transactional()
    broker, _ = opened(fs, notes)
    broker.create_topic("orders", 1)
    one, two = TxnClient(broker, "one"), TxnClient(broker, "two")
    one.init()
    two.init()
    one.send("orders", b"a")
    send(broker, "orders", b"b")
    two.send("orders", b"c")
    one.abort()
    relay(broker)
    assert [(base, aborted) for _, _, base, _, aborted in notes.rows] == [(0, True), (1, False)]
    two.commit()
    relay(broker)
    assert is_whole(broker, notes, "orders")
    assert [base for _, _, base, _, aborted in notes.rows if aborted] == [0]


@pytest.mark.parametrize("commit", [True, False])
def test_a_partition_that_waits_is_found_again_after_a_crash(commit: bool) -> None:
    fs, notes = transactional()
    broker, _ = opened(fs, notes)
    broker.create_topic("orders", 2)
    one = TxnClient(broker, "one")
    one.init()
    send(broker, "orders", b"0")
    one.send("orders", b"a")
    send(broker, "orders", b"b")
    send(broker, "orders", b"c", index=1)
    relay(broker)
    broker.housekeeping.turn()
    relay(broker)
    assert notes.rows == [("orders", 0, 0, 1, False), ("orders", 1, 0, 1, False)]
    again = Notebook()
    broker, _ = opened(fs.kill(), again)
    relay(broker)
    assert again.rows == notes.rows
    one.broker = broker
    broker.housekeeping.turn()
    relay(broker)
    assert again.rows == notes.rows
    one.end(commit=commit)
    relay(broker)
    assert is_whole(broker, again, "orders")
    assert is_whole(broker, again, "orders", 1)
    assert [base for _, index, base, _, aborted in again.rows if aborted] == ([] if commit else [1])


# --------------------------------------------------------------------------------------------------- what goes wrong


def test_a_dispatcher_that_raises_is_halted_and_others_go_on() -> None:
    fs = disk()
    bad, good = Notebook("bad"), Notebook("good")
    broker, following = opened(fs, bad, good)
    broker.create_topic("orders", 1)
    send(broker, "orders", b"a")
    relay(broker)
    broker.housekeeping.turn()
    relay(broker)
    bad.fails = True
    send(broker, "orders", b"b")
    relay(broker)
    send(broker, "orders", b"c")
    broker.housekeeping.turn()
    relay(broker)
    assert bad.of("orders") == [(0, 1)]
    assert is_whole(broker, good, "orders")
    assert broker.health() == ["dispatcher bad of plugin mine is halted: RuntimeError: no luck"]
    following.stop()
    bad.fails = False
    again = Notebook("bad")
    broker, _ = opened(fs.kill(), again)
    relay(broker)
    assert is_whole(broker, again, "orders")
    assert broker.health() == []


def test_a_checkpoint_that_is_no_state_halts_it() -> None:
    notes = Notebook()
    notes.checkpoint = lambda: 5  # type: ignore[method-assign,assignment,return-value]
    broker, _ = opened(disk(), notes)
    broker.create_topic("orders", 1)
    relay(broker)
    broker.housekeeping.turn()
    relay(broker)
    assert broker.health() == [
        "dispatcher notes of plugin mine is halted: TypeError: checkpoint gave 5, expected bytes"
    ]


def saved_run() -> FaultyFileSystem:
    fs = disk()
    notes = Notebook()
    broker, following = opened(fs, notes)
    broker.create_topic("orders", 1)
    send(broker, "orders", b"a")
    relay(broker)
    following.stop()
    broker.close()
    return fs


def begun_anew(fs: FaultyFileSystem) -> list[str]:
    notes = Notebook()
    broker, following = opened(fs, notes)
    relay(broker)
    assert notes.restored == [None]
    assert is_whole(broker, notes, "orders")
    return list(following.feature().warnings())  # type: ignore[misc]


def test_a_file_that_was_damaged_is_not_believed() -> None:
    fs = saved_run()
    flip(fs, PATH, 12)
    assert begun_anew(fs) == [
        f"dispatcher notes of plugin mine starts from the beginning: {PATH}: its checksum is wrong"
    ]


def test_a_file_that_is_cut_off_or_of_a_later_version_is_not_believed() -> None:
    for content, reason in ((b"HM", "it is cut off"), (b"HMfo\x02" + bytes(8), "it is of another version")):
        fs = saved_run()
        files.write_file(fs, PATH, [content])
        assert begun_anew(fs) == [f"dispatcher notes of plugin mine starts from the beginning: {PATH}: {reason}"]


def test_a_position_of_another_log_is_not_believed() -> None:
    fs = saved_run()
    found = files.load(fs, PATH)
    assert found is not None
    other = disk(2)
    broker = open_broker(other, VirtualClock())
    broker.create_topic("orders", 1)
    send(broker, "orders", b"z")
    turn(broker)
    other.make_directory("plugins")
    other.make_directory("plugins/mine")
    files.save(other, PATH, found)
    (warning,) = begun_anew(other.kill())
    assert warning.endswith("it is of another node's log")


@pytest.mark.parametrize("far", [True, False])
def test_a_position_that_the_log_has_not_is_not_believed(far: bool) -> None:
    """The data directory was taken back to an older copy, and perhaps written to since."""
    fs = saved_run()
    found = files.load(fs, PATH)
    assert found is not None
    assert found.last is not None
    if far:
        files.save(fs, PATH, files.msgspec.structs.replace(found, position=1 << 30))
    else:
        files.save(
            fs,
            PATH,
            files.msgspec.structs.replace(found, last=files.msgspec.structs.replace(found.last, payload_crc=1)),
        )
    (warning,) = begun_anew(fs)
    assert ("and the log ends at" if far else "the log has another frame at") in warning


def test_what_was_deleted_before_it_was_shown_is_reported() -> None:
    broker = open_broker(saved_run(), VirtualClock())
    for _ in range(500):
        send(broker, "orders", b"x" * 500)
        turn(broker)
    while len(broker.log.segments) > 2:
        broker.log.remove_oldest()
    again = Notebook()
    following = follow(broker, again)
    relay(broker)
    assert again.of("orders")[0] == (0, 1)
    assert again.of("orders")[1][0] > 1
    assert again.of("orders")[-1][1] == partition_of(broker, "orders").next_offset
    (warning,) = following.feature().warnings()  # type: ignore[misc]
    assert "has missed log positions" in warning


# ------------------------------------------------------------------------------------------------------------ crashes


def play(fs: FaultyFileSystem, flush: str, seed: int) -> None:
    """Some seconds of a broker with a dispatcher, as chance has it."""
    dice = random.Random(seed)
    notes = Notebook()
    broker, following = opened(fs, notes, flush=flush)
    assert following.feature().warnings() == []  # type: ignore[misc]  # it never was beyond what is on disk
    if broker.topic("orders") is None:
        broker.create_topic("orders", 2)
    producer = TxnClient(broker, "one")
    producer.init()
    opens = False
    for number in range(60):
        what = dice.random()
        index = dice.randrange(2)
        if what < 0.4:
            send(broker, "orders", b"%d" % number, b"x" * dice.randrange(2_000), index=index)
        elif what < 0.55:
            producer.send("orders", b"t%d" % number, index=index)
            opens = True
        elif what < 0.65 and opens:
            producer.end(commit=dice.random() < 0.5)
            opens = False
        elif what < 0.8:
            broker.housekeeping.turn()
        elif what < 0.95:
            broker.write()
            broker.settle()
        else:
            sync(broker)
        while broker.relays.has_work and dice.random() < 0.8:
            loading = broker.relays.step()
            if loading is not None:
                loading.loaded(loading.load())


@pytest.mark.parametrize("flush", ["sync", "interval"])
@pytest.mark.parametrize("after", ["kill", "power_loss"])
def test_neither_kill_nor_power_loss_makes_it_miss_or_repeat_one(flush: str, after: str) -> None:
    """What its state says it was shown, and what the log holds, are the same in the end: nothing that a power cut took
    back is in the state, and nothing is missing or there twice."""
    fs = disk(7)
    died = 0
    for seed in range(120):
        fs.operations = 0
        fs.crash_at = 20 + 2 * (seed % 40)
        with suppress(ProcessDied):
            play(fs, flush, seed)
        died += fs.dead
        fs = fs.kill() if after == "kill" else fs.power_loss()
        if seed % 10 == 9:
            notes = Notebook()
            broker, following = opened(fs, notes, flush=flush)
            found = broker.topic("orders")
            if found is not None:
                TxnClient(broker, "one").init()  # ends what is open
                relay(broker)
                assert is_whole(broker, notes, "orders", 0)
                assert is_whole(broker, notes, "orders", 1)
            following.stop()
            broker.close()
    assert died > 60
