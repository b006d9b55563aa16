"""An import that is killed at any step leaves the directory of one process, or that of shards; the next one ends it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from halfmoon.errors import StartError
from halfmoon.server.workers.importing import BEFORE, MADE, import_directory
from halfmoon.server.workers.plan import CATALOG
from tests.core.bench import VirtualClock
from tests.core.relay_bench import pass_ms, relay, send
from tests.server.workers.import_bench import Shards, open_one, records_of

SHARDS = 2
STEPS = ("link", "rename", "unlink", "rmdir", "mkdir", "fsync", "fdatasync", "pwritev")
PARTS = 8


@pytest.fixture(autouse=True, scope="module")
def _no_disk_is_waited_for() -> Iterator[None]:
    """A process that is killed leaves what it wrote with the system, synced or not. A slow disk takes minutes here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, lambda _fd: None)
        yield


class Killed(BaseException):
    pass


class _Counting:
    """Counts the system calls that change what is on disk; at one of them, and from then on, nothing happens."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.done = 0

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **more: Any) -> Any:
            self.done += 1
            if self.at is not None and self.done >= self.at:
                raise Killed
            return call(*given, **more)

        return counted


@contextmanager
def counting(at: int | None = None) -> Iterator[_Counting]:
    counts = _Counting()
    counts.at = at
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, counts.wrap(getattr(os, name)))
        yield counts


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one") / "data"
    clock = VirtualClock()
    broker = open_one(folder, clock)
    for name in ("t", "u"):
        broker.create_topic(name, 2)
    for number in range(24):
        send(broker, "tu"[number % 2], (b"%d" % number + b"x" * 9_000, {}), index=number // 2 % 2)
        relay(broker)
    for index in range(2):
        send(broker, "t", (b"late %d" % index, {"TIMER_DELAY_MS": "60000"}), index=index)
    relay(broker)
    broker.close()
    return folder


def values(found: dict[tuple[str, int], list[tuple[int, bytes]]]) -> list[bytes]:
    return sorted(value for rows in found.values() for _, value in rows)


EXPECTED = sorted(
    [*(b"%d" % number + b"x" * 9_000 for number in range(24)), *(b"late %d" % index for index in range(2))]
)


def look(folder: Path, clock: VirtualClock) -> None:
    """The shards have all there was, once."""
    opened = Shards(folder, clock, SHARDS)
    for node in opened.nodes.values():
        relay(node)
        pass_ms(node, clock, 61_000)
    assert values(records_of(opened.nodes)) == EXPECTED
    opened.close()
    assert not (folder / MADE).exists()
    assert not (folder / "log").exists()
    assert (folder / BEFORE / "meta.json").exists()


def end(folder: Path, clock: VirtualClock) -> None:
    """The user gives the command again."""
    try:
        import_directory(folder, SHARDS, clock=clock)
    except StartError as error:
        assert "already" in str(error)  # noqa: PT017 (it need not be raised)


def steps_of(original: Path, folder: Path) -> int:
    shutil.copytree(original, folder)
    with counting() as counts:
        assert import_directory(folder, SHARDS, clock=VirtualClock()) is not None
    look(folder, VirtualClock())
    shutil.rmtree(folder)
    return counts.done


def die(original: Path, folder: Path, at: int) -> bool:
    """Whether it was one of shards then."""
    shutil.copytree(original, folder)
    clock = VirtualClock()
    with counting(at), pytest.raises(Killed):
        import_directory(folder, SHARDS, clock=clock)
    is_shards = (folder / CATALOG).exists()
    if not is_shards and at % 3 == 0:  # it goes on as one process before it is tried again
        broker = open_one(folder, clock)
        relay(broker)
        assert values(records_of({0: broker})) == [each for each in EXPECTED if not each.startswith(b"late")]
        broker.close()
    if at % 5 == 0:  # and dies in the second attempt, too
        with counting(at), suppress(Killed):
            end(folder, clock)
    end(folder, clock)
    look(folder, clock)
    shutil.rmtree(folder)
    return is_shards


def test_it_may_be_killed_at_any_step(original: Path, tmp_path: Path) -> None:
    """At some of them; the last ones are all about the place of the catalog and of what was before."""
    folder = tmp_path / "data"
    steps = steps_of(original, folder)
    ends = {die(original, folder, at) for at in (*range(1, steps - 30, 23), *range(steps - 30, steps + 1, 2))}
    assert ends == {True, False}


@pytest.mark.parametrize("part", range(PARTS))
def test_it_may_be_killed_at_each_step(original: Path, tmp_path: Path, part: int) -> None:
    folder = tmp_path / "data"
    for at in range(1 + part, steps_of(original, folder) + 1, PARTS):
        die(original, folder, at)
