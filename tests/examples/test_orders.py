"""examples/orders: order and cart agree, whoever crashes, because the broker asks; its README shows what happens."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from types import ModuleType

import pytest

from halfmoon.adapters.rocketmq.checks import CheckBack
from halfmoon.config.settings import load_settings
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.server import app, tick
from halfmoon.server.clock import SystemClock
from halfmoon.testing import Broker
from tests.several_workers import of_one_process

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/orders"
SHOP = EXAMPLE / "shop.py"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
NUMBER = r"\b[0-9a-f]{8}\b"
"""Of an order."""
WAIT_S = 100
"""Until what hangs is given up: each command is a process of its own."""
HOUR_MS = 3_600_000


class Clock(SystemClock):
    """The machine's, but that an hour passes when somebody is there again who can be asked about a crash."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_ms = 0
        self.has_crashed = False

    def wall_ms(self) -> int:
        return super().wall_ms() + self._ahead_ms

    def producers_are_there(self) -> None:
        if self.has_crashed:
            self.has_crashed = False
            self._ahead_ms += HOUR_MS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The broker's."""
    clock, follow = Clock(), CheckBack.follow

    def followed(check_back: CheckBack, group: str) -> None:
        follow(check_back, group)
        clock.producers_are_there()

    monkeypatch.setattr(CheckBack, "follow", followed)
    monkeypatch.setattr(app, "SystemClock", lambda: clock)
    monkeypatch.setattr(tick, "CLOCK_INTERVAL_S", 0.05)
    return clock


@pytest.fixture
def broker(clock: Clock) -> Iterator[Broker]:
    """One that asks after an hour, and again after another; so an order that takes its time is not asked about."""
    config = {
        "listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}},
        "plugins": {"transaction": {"timeout": "1h", "check_interval": "1h"}},
    }
    with Broker(config=config) as running:
        yield running


class Shop:
    """The commands, on databases of their own."""

    def __init__(self, broker: Broker, clock: Clock, folder: Path) -> None:
        self.clock = clock
        self.folder = folder
        self.environment = {**os.environ, "NAMESRV_ADDR": broker.namesrv, "PYTHONPATH": str(ROOT)}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-W", "error", str(SHOP), "--dir", str(self.folder), *arguments]

    def run(self, *arguments: str, code: int = 0) -> list[str]:
        """The lines that are printed, with `#` for an order's number."""
        done = subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, text=True, timeout=WAIT_S
        )
        assert done.returncode == code, done.stdout + done.stderr
        self.clock.has_crashed |= arguments[0] == "order" and code == 1
        return without_numbers(done.stdout)

    @contextmanager
    def working(self, *arguments: str, code: int = 0) -> Iterator[Worker]:
        worker = Worker(self.command("work", *arguments), self.environment)
        try:
            yield worker
            if not code:
                worker.process.send_signal(signal.SIGINT)
            assert worker.process.wait(WAIT_S) == code
        finally:
            worker.end()


class Worker:
    """`shop.py work`, while it runs."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self._lines: Queue[str] = Queue()
        self._thread = Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def says(self, *expected: str) -> None:
        """These are the next lines."""
        for line in expected:
            try:
                said = self._lines.get(timeout=WAIT_S)
            except Empty:
                pytest.fail(f"work did not say {line!r}")
            assert without_numbers(said) == [line]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def without_numbers(text: str) -> list[str]:
    return re.sub(NUMBER, "#", text).splitlines()


@pytest.fixture
def shop(broker: Broker, clock: Clock, tmp_path: Path) -> Shop:
    return Shop(broker, clock, tmp_path)


# ------------------------------------------------------------------------------------------------------------ the tests


def test_nobody_crashes(shop: Shop) -> None:
    shop.run("put", "ann", "tea=2", "bread")
    assert shop.run("order", "ann") == ["order #: placed"]
    with shop.working() as worker:
        worker.says("order #: taken out of the cart")
    assert shop.run("show") == ["order # of ann: placed, taken out of the cart", "they agree"]


def test_what_the_database_refuses_is_rolled_back(shop: Shop) -> None:
    shop.run("put", "ann", "jam=2")
    (refused,) = shop.run("order", "ann")
    assert refused.startswith("order #: refused, ")
    shop.run("put", "bob", "tea")
    shop.run("order", "bob")
    with shop.working() as worker:
        worker.says("order #: taken out of the cart")  # bob's
    assert shop.run("show") == [
        "cart of ann: 2 jam", "order # of bob: placed, taken out of the cart", "they agree",
    ]  # fmt: skip


@of_one_process
def test_a_crash_before_the_commit(shop: Shop) -> None:
    shop.run("put", "ann", "tea=2")
    assert shop.run("order", "ann", "--crash", "before-commit", code=1) == ["crash before-commit"]
    assert shop.run("show") == ["cart of ann: 2 tea", "they agree"]
    with shop.working() as worker:
        worker.says("order #: the broker asks; it is abandoned")
    assert shop.run("show") == ["cart of ann: 2 tea", "order # of ann: abandoned", "they agree"]
    assert shop.run("order", "ann") == ["order #: placed"]  # and nothing is in its way
    with shop.working() as worker:
        worker.says("order #: taken out of the cart")


def test_a_crash_after_the_cart_was_cleared(shop: Shop) -> None:
    shop.run("put", "ann", "tea=2")
    shop.run("order", "ann")
    with shop.working("--crash", "after-clearing", code=1) as worker:
        worker.says("order #: taken out of the cart", "crash after-clearing")
    shop.run("put", "ann", "tea")
    with shop.working() as worker:
        worker.says("order #: seen before")
    assert shop.run("show") == [
        "cart of ann: 1 tea", "order # of ann: placed, taken out of the cart", "they agree",
    ]  # fmt: skip


def test_an_order_that_comes_too_late_is_refused(tmp_path: Path) -> None:
    stores = _module("stores")
    orders = stores.Orders(tmp_path / "orders.sqlite")
    orders.place("1", "ann", {"tea": 1}, lambda: None)
    assert orders.settle("1", "ann") == "placed"
    assert orders.settle("2", "ann") == "abandoned"
    with pytest.raises(stores.Refused, match="abandoned"):
        orders.place("2", "ann", {"tea": 1}, lambda: None)
    assert [state for _, _, state in orders.all()] == ["placed", "abandoned"]


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"orders_example_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --------------------------------------------------------------------------------------------------------------- README


@of_one_process
def test_readme_shows_what_happens(shop: Shop) -> None:
    blocks = re.findall(r"<!-- test: run -->\n```console\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        for command, shown in re.findall(r"^\$ python examples/orders/shop\.py (.*)\n((?:[^$].*\n)*)", block, re.M):
            arguments, lines = command.split(), without_numbers(shown)
            if lines[-1:] == ["^C"]:
                assert arguments == ["work"]
                with shop.working() as worker:
                    worker.says(*lines[:-1])
            else:
                assert shop.run(*arguments, code="--crash" in arguments) == lines


def test_readme_starts_a_broker_that_asks_soon() -> None:
    environment = dict(re.findall(r"(HALFMOON_\w+)=(\S+)", README))
    assert set(environment.values()) == {"1s"}
    load_plugins(load_settings(None, environment, {}), BUILT_IN, installed=[])  # refuses what is misspelt


def test_readme_names_every_way_to_crash(shop: Shop) -> None:
    shown = re.findall(r"^\| `(\w+) --crash ([\w-]+)` \|", README, re.MULTILINE)
    for command in "order", "work":
        choices = re.findall(r"--crash \{(.*?)\}", " ".join(shop.run(command, "--help")))
        assert [point for name, point in shown if name == command] == choices[0].split(",")
