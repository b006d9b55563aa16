"""A real broker for tests: no JVM, no Docker, no port to choose. It is inside the test process, or has processes of its
own (`workers`)."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from halfmoon.config.settings import load_settings
from halfmoon.server.measured_loop import MeasuredLoop

if TYPE_CHECKING:
    from halfmoon.server.app import App
    from halfmoon.services.credentials.users import Upsertion
    from halfmoon.testing.admin_socket import AdminSocket
    from halfmoon.testing.nodes import Nodes
    from halfmoon.testing.secured import Secured
    from halfmoon.testing.workers import Workers

DEFAULTS: Mapping[str, Any] = {
    "listeners": {"kafka": {"bind": "127.0.0.1:0"}},
    "log": {"segment_bytes": "16MiB", "flush": "interval"},
    "topics": {"partitions": 1},
    "groups": {"initial_rebalance_delay": "0ms"},
}
"""What a test wants otherwise than a production broker: small files, no waiting for the disk or for group members."""

START_TIMEOUT_S = 30.0


class Broker:
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
        self._secured: Secured | None = None
        if secure:
            from halfmoon.testing.secured import Secured

            self._secured = Secured()
        self._config = _over(DEFAULTS if self._secured is None else _over(DEFAULTS, self._secured.config), config or {})
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
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._app: App | None = None
        self._addresses: dict[str, str] = {}
        """`host:port` of each listener while the broker runs."""
        self.data_dir = ""

    @property
    def app(self) -> App | None:
        """The broker itself, while it runs in this process. Raises ValueError where it has processes of its own."""
        if self.processes is not None:
            from halfmoon.testing.workers import NotInThisProcessError

            raise NotInThisProcessError("there is no app: this broker has processes of its own (workers)")
        return self._app

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
            self._in_loop(lambda app: _set_passwords(app, made))
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

    def start(self) -> Broker:
        assert not self._addresses, "the broker runs already"
        self.data_dir = self._given_dir or tempfile.mkdtemp(prefix="halfmoon-")
        if self.processes is not None:
            self._start_workers(self.processes)
            return self
        self._started.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, name="halfmoon-broker", daemon=True)
        self._thread.start()
        if not self._started.wait(START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {START_TIMEOUT_S} s")
        if self._error is not None:
            self._join()
            raise self._error
        return self

    def stop(self) -> None:
        """Stop cleanly: answers go out, the log is flushed. A temporary data directory is removed. Raises what ended
        the broker, if that was not this."""
        if self.processes is not None:
            self._stop_workers(self.processes)
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself, and its loop is closed
                self._loop.call_soon_threadsafe(self._stop.set)
        self._join()
        if self._error is not None:
            raise self._error

    def restart(self) -> Broker:
        """Stop and start again on the same data and at the same address, so that clients find it again."""
        before, config = self._given_dir, self._config  # workers keep their ports by themselves
        same = {"kafka": {"bind": self.bootstrap_servers}}
        if config["listeners"].get("rocketmq"):
            same["rocketmq"] = {"bind": self.rocketmq, "namesrv": self.namesrv}
        self._config = _over(config, {"listeners": same})
        self._given_dir = self.data_dir
        try:
            self.stop()
            return self.start()
        finally:
            self._given_dir, self._config = before, config

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
        """Of a broker that has processes of its own, one for each."""
        assert self._addresses, "the broker is not running"
        assert self.processes is not None, "the broker has no processes of its own"
        from halfmoon.testing.admin_socket import AdminSocket

        return [AdminSocket(path) for path in self.processes.admin_sockets(self.data_dir)]

    def _in_loop(self, work: Callable[[App], None]) -> None:
        """Done in the broker's thread. Raises what it raises."""
        app, loop = self.app, self._loop
        assert app is not None and loop is not None, "the broker is not running"

        async def call() -> None:
            work(app)

        asyncio.run_coroutine_threadsafe(call(), loop).result(START_TIMEOUT_S)

    def _join(self) -> None:
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        self._app = None
        self._forget()

    def _forget(self) -> None:
        self._addresses = {}
        if self._given_dir is None:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _start_workers(self, workers: Workers | Nodes) -> None:
        try:
            workers.start(self.data_dir)
        except BaseException:
            self._forget()
            raise
        self._addresses = workers.addresses
        if self._secured is not None:
            try:
                self.administrators[0].set_passwords(self._secured.passwords())
            except BaseException:
                self._stop_workers(workers)
                raise

    def _stop_workers(self, workers: Workers | Nodes) -> None:
        if self._addresses:
            try:
                workers.stop()
            finally:
                self._forget()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # handed to the thread that waits in `start`
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        with warnings.catch_warnings():
            # kafka-python 3.0.12, on import; it must not fail the tests of who makes errors of warnings.
            warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
            from halfmoon.server.app import App

        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        settings = load_settings(_over(self._config, {"node": {"data_dir": self.data_dir}}), {}, {})
        app = App(settings, plugins=self._plugins)
        await app.start()
        if self._secured is not None:
            _set_passwords(app, self._secured.passwords())
        self._app = app
        doors = {"kafka": app.kafka_address, "rocketmq": app.rocketmq_address, "namesrv": app.namesrv_address}
        doors["http"] = app.http_address
        self._addresses = {name: str(address) for name, address in doors.items() if address is not None}
        self._started.set()
        try:
            await self._stop.wait()
        finally:
            await app.stop()


def _set_passwords(app: App, made: Sequence[Upsertion]) -> None:
    """In the broker's loop."""
    users, name = app.node.users, made[0].name
    if any(user.name == name for user in users.all()):
        users.set_passwords(name, made)
    else:
        users.create(name, made)


def _over(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`more` laid over `base`, section by section."""
    merged = copy.deepcopy(dict(base))
    for key, value in more.items():
        below = merged.get(key)
        merged[key] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
