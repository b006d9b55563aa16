"""A real broker for tests, in the test's process or with its own (`workers`): no JVM, no Docker, no port to choose."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from halfmoon.testing import temporary
from halfmoon.testing.controlled import ControlledBroker
from halfmoon.testing.defaults import DEFAULTS, laid_over
from halfmoon.testing.in_thread import InThread
from halfmoon.testing.state import State

if TYPE_CHECKING:
    from os import PathLike

    from halfmoon.server.app import App
    from halfmoon.testing.admin_socket import AdminSocket
    from halfmoon.testing.nodes import Nodes
    from halfmoon.testing.secured import Secured
    from halfmoon.testing.workers import Workers


class Broker(ControlledBroker):
    """Use it as a context manager, or call `start` and `stop`.

        with halfmoon.testing.Broker() as broker:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

    `config`: sections as in broker.yaml, over this kit's defaults (`DEFAULTS`).
    `data_dir`: kept if given; else a temporary directory that goes with the broker.
    `plugins`: plugin objects or modules to switch on, besides the built-in ones.
    `secure`: clients need TLS, log in with SCRAM, and access rules hold; `client_config` has what the super user `test`
    needs, `create_user` and `allow` make others. Takes `halfmoon[auth]`.
    `workers`: so many processes share the topics, as of `halfmoon serve --workers`. They are not this process: there is
    no `app` then, and `plugins` cannot be objects. Both raise ValueError; `config` can switch installed plugins on.
    `nodes`: the same for so many nodes of a cluster (docs/cluster.md). PostgreSQL and versitygw must be installed.
    Without workers the broker runs in a thread with an event loop of its own. Either way it stores and recovers as a
    real one does. Raises `halfmoon.errors.StartError` where it cannot start.
    """

    def __init__(
        self,
        *,
        config: Mapping[str, Any] | None = None,
        data_dir: str | None = None,
        plugins: tuple[object, ...] | list[object] = (),
        secure: bool = False,
        workers: int = 0,
        nodes: int = 0,
    ) -> None:
        super().__init__()
        self._secured: Secured | None = None
        if secure:
            from halfmoon.testing.secured import Secured

            self._secured = Secured()
        self._config = laid_over(
            DEFAULTS if self._secured is None else laid_over(DEFAULTS, self._secured.config), config or {}
        )
        self._given_dir = data_dir
        self._plugins = tuple(plugins)
        self.processes: Workers | Nodes | None = None
        """Where it is not in this one."""
        if workers or nodes:
            from halfmoon.testing.workers import NotInThisProcessError, Workers

            if self._plugins:
                raise NotInThisProcessError("plugins are objects of this process, and workers are other processes")
            if nodes:
                from halfmoon.testing.nodes import Nodes

                self.processes = Nodes(nodes, self._config)
            else:
                self.processes = Workers(workers, self._config)
        self._here: InThread | None = None
        """Where it is in this process, and runs."""
        self._state = State()
        self._addresses: dict[str, str] = {}
        """`host:port` of each listener while the broker runs."""
        self._addresses_before: dict[str, str] | None = None
        """Of one that was killed, whose data directory is still there."""
        self._snapshot: Path | None = None
        """What its data directory begins with."""
        self._undone: weakref.finalize[Any, Any] | None = None
        self.data_dir = ""

    @classmethod
    def from_snapshot(cls, path: str | PathLike[str], **given: Any) -> Broker:
        """A broker that begins with what `save` has kept there, and with its time. The snapshot stays as it is: any
        number of brokers may begin with it, also at the same time. `given`: as of Broker; with `workers` where the one
        that was saved had them. Raises StartError where there is no snapshot."""
        from halfmoon.testing.snapshots import ahead_ms_of

        made = cls(**given)
        made._snapshot = Path(path)
        made._ahead_ms = ahead_ms_of(Path(path))
        return made

    @property
    def app(self) -> App | None:
        """The broker itself, while it runs in this process. Raises ValueError where it has processes of its own."""
        if self.processes is not None:
            from halfmoon.testing.workers import NotInThisProcessError

            raise NotInThisProcessError("there is no app: this broker has processes of its own (workers)")
        return None if self._here is None else self._here.app

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for a client's `bootstrap.servers`."""
        assert "kafka" in self._addresses, "the broker is not running"
        return self._addresses["kafka"]

    def client_config(self, user: str = "test") -> dict[str, Any]:
        """For confluent-kafka, and whatever else is built on librdkafka: where the broker is and, where it is `secure`,
        how to log in as this user."""
        found: dict[str, Any] = {"bootstrap.servers": self.bootstrap_servers}
        return found if self._secured is None else found | self._secured.librdkafka(user)

    def kafka_python_config(self, user: str = "test") -> dict[str, Any]:
        """The same as arguments of kafka-python, and of aiokafka."""
        found: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers}
        return found if self._secured is None else found | self._secured.kafka_python(user)

    def client_properties(self, user: str = "test") -> Path:
        """A file for Kafka's own tools and `halfmoon … --command-config`, which goes with the broker. For one that is
        `secure`."""
        return self._security().properties_file(user)

    def create_user(self, name: str, password: str | None = None) -> None:
        """A user who may do nothing yet, with this password or one by chance; one that is there gets the password. For
        a broker that is `secure`."""
        made = self._security().passwords(name, password)
        if self.processes is None:
            from halfmoon.testing.secured import set_passwords

            self._in_loop(lambda app: set_passwords(app, made))
        else:
            self.administrators[0].set_passwords(made)

    def allow(self, user: str, resource: str, *operations: str, prefixed: bool = False) -> None:
        """Access rules, for the next request on: `allow("alice", "topic:orders", "Read", "Write")`.

        Resources are `topic:…`, `group:…`, `transactional-id:…`, `cluster`; `prefixed`: all whose names begin so.
        Raises ValueError for words that rules do not know."""
        self._rule(user, resource, operations, prefixed=prefixed)

    def deny(self, user: str, resource: str, *operations: str, prefixed: bool = False) -> None:
        """As `allow`. What is denied wins."""
        self._rule(user, resource, operations, deny=True, prefixed=prefixed)

    @property
    def rocketmq(self) -> str:
        """`host:port` where RocketMQ clients are sent to; needs `config={"listeners": {"rocketmq": {…}}}`."""
        assert "rocketmq" in self._addresses, "no rocketmq listener is configured"
        return self._addresses["rocketmq"]

    @property
    def namesrv(self) -> str:
        """`host:port` of the name service, for a RocketMQ client's namesrvAddr."""
        assert "namesrv" in self._addresses, "no rocketmq listener is configured"
        return self._addresses["namesrv"]

    @property
    def http(self) -> str:
        """`host:port` of /healthz and /metrics; needs `config={"listeners": {"http": {"bind": "127.0.0.1:0"}}}`."""
        assert "http" in self._addresses, "no http listener is configured"
        return self._addresses["http"]

    @property
    def is_running(self) -> bool:
        return bool(self._addresses)

    def start(self) -> Broker:
        """Where it was killed: with the same data, at the same address."""
        assert not self._addresses, "the broker runs already"
        if self._addresses_before is not None:
            return self._start_at(self._addresses_before)
        return self._start(self._config)

    def stop(self) -> None:
        """Stop cleanly: answers go out, the log is flushed. A temporary data directory is removed. Raises what ended
        the broker, if that was not this."""
        here, self._here = self._here, None
        try:
            if here is not None:
                here.stop()
            elif self._addresses and self.processes is not None:
                self.processes.stop()
        finally:
            self._forget()

    def restart(self, node: int | None = None) -> Broker:
        """Stop and start again on the same data and at the same address, so that clients find it again. One that was
        killed is started. `node`: only this node of several, which was killed."""
        if node is not None:
            self._several().start_again(node, self._state)
            return self
        before, given = self._addresses or self._addresses_before, self._given_dir
        assert before, "the broker is not running"
        self._given_dir = self.data_dir
        try:
            if self._addresses:
                self.stop()
            self._addresses_before = before
            return self.start()
        finally:
            self._given_dir = given
            self._watch()

    def kill(self, node: int | None = None) -> None:
        """Have it die, as by kill −9: whoever waits for an answer gets none, and the next start has to recover. The
        data directory stays: `restart` goes on with it, `stop` removes it if it is a temporary one.

        `node`: only this one, of several processes. A worker is started again at once, as `halfmoon serve` does it; a
        node of a cluster by `restart(node)`."""
        assert self._addresses, "the broker is not running"
        if node is not None:
            self._several().kill(node)
            return
        self._addresses_before, self._addresses = self._addresses, {}
        here, self._here = self._here, None
        if here is not None:
            here.kill()
        else:
            self._several().kill()

    def save(self, path: str | PathLike[str]) -> None:
        """Keep all that it has in a new directory, for `from_snapshot`: topics, records, groups and their offsets, what
        waits, users and rules, and its time. It goes on running; what it acknowledges meanwhile may be in there or not.
        Raises StartError where the directory is not empty."""
        from halfmoon.testing.snapshots import save

        assert self.data_dir, "the broker was never started"
        save(Path(self.data_dir), Path(path), self._ahead_ms)

    def _start(self, config: Mapping[str, Any]) -> Broker:
        if self._addresses_before is None:
            self.data_dir = self._given_dir or str(temporary.make())
            self._take_snapshot()
        self._addresses_before = None
        try:
            if self.processes is not None:
                self._start_processes(self.processes)
            else:
                here = InThread(laid_over(config, {"node": {"data_dir": self.data_dir}}), self._plugins, self._state)
                here.start(partial(_set_up, self._secured))
                self._here, self._addresses = here, here.addresses
        except BaseException:
            self._forget()
            raise
        self._watch()
        return self

    def _start_at(self, addresses: Mapping[str, str]) -> Broker:
        """At the addresses that it had; processes keep their own."""
        same: dict[str, Any] = {"kafka": {"bind": addresses["kafka"]}}
        if "rocketmq" in addresses:
            same["rocketmq"] = {"bind": addresses["rocketmq"], "namesrv": addresses["namesrv"]}
        return self._start(laid_over(self._config, {"listeners": same}))

    def _take_snapshot(self) -> None:
        if self._snapshot is not None:
            from halfmoon.testing.snapshots import take

            try:
                take(self._snapshot, Path(self.data_dir))
            except BaseException:
                self._forget()
                raise
            self._snapshot = None
        self._state_changed()

    def _watch(self) -> None:
        """Stop it if nobody has it any more."""
        if self._undone is not None:
            self._undone.detach()
        folder = self.data_dir if self._given_dir is None else None
        if self._here is not None:
            self._undone = weakref.finalize(self, self._here.leave, folder)
        elif self.processes is not None:
            self._undone = weakref.finalize(self, _leave_processes, self.processes, folder)
        if self._undone is not None:
            self._undone.atexit = False  # then all that is temporary goes

    def _forget(self) -> None:
        self._addresses, self._addresses_before = {}, None
        if self._undone is not None:
            self._undone.detach()
            self._undone = None
        if self._given_dir is None and self.data_dir:
            temporary.remove(self.data_dir)

    def _ask(self, question: str, **told: Any) -> list[Any]:
        here = self._here
        if here is not None:
            return [here.call(lambda _: here.instrument.answer(question, told))]  # type: ignore[union-attr]
        if self.processes is None or not self._addresses:
            raise ValueError("the broker is not running")
        from halfmoon.testing.asked import ask_all

        return ask_all(self.processes.instruments, question, told)

    def _state_changed(self) -> None:
        self._state.ahead_ms, self._state.rules = self._ahead_ms, self._rules
        if self.processes is not None and self._addresses:
            self.processes.write_state(self._state)

    def _several(self) -> Workers | Nodes:
        if self.processes is None:
            raise ValueError("the broker has no processes of its own: Broker(workers=2)")
        return self.processes

    def _security(self) -> Secured:
        assert self._secured is not None, "the broker is not secure: Broker(secure=True)"
        return self._secured

    def _rule(self, user: str, resource: str, operations: tuple[str, ...], **how: bool) -> None:
        self._security()
        from halfmoon.testing.secured import rules

        made = rules(user, resource, operations, **how)
        if self.processes is not None:
            self.administrators[0].add_rules(made)
            return

        def add(app: App) -> None:
            for rule in made:
                app.node.acls.check(rule)
            app.node.acls.change(made)

        self._in_loop(add)

    @property
    def administrators(self) -> list[AdminSocket]:
        """Where each of its processes is asked as by an administrator."""
        assert self._addresses, "the broker is not running"
        from halfmoon.testing.admin_socket import AdminSocket

        if self.processes is not None:
            return [AdminSocket(path) for path in self.processes.admin_sockets(self.data_dir)]
        assert self._here is not None
        return [AdminSocket(self._here.call(_admin_socket))]

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        return None if self._here is None else self._here.loop

    def _in_loop(self, work: Callable[[App], None]) -> None:
        """Done in the broker's thread. Raises what it raises."""
        assert self._here is not None, "the broker is not running"

        async def call(app: App) -> None:
            work(app)

        self._here.call(call)

    def _start_processes(self, processes: Workers | Nodes) -> None:
        processes.start(self.data_dir, self._state)
        self._addresses = processes.addresses
        if self._secured is not None:
            try:
                self.administrators[0].set_passwords(self._secured.passwords())
            except BaseException:
                processes.stop()
                raise

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _set_up(secured: Secured | None, app: App) -> None:
    """In the broker's loop, before it is told that it runs."""
    if secured is not None:
        from halfmoon.testing.secured import set_passwords

        set_passwords(app, secured.passwords())


async def _admin_socket(app: App) -> Path:
    await app.open_locally()
    assert app.admin_socket is not None
    return app.admin_socket


def _leave_processes(processes: Workers | Nodes, folder: str | None) -> None:
    processes.kill()
    if folder is not None:
        temporary.remove(folder)
