"""What all tests share: Halfmoon's own pytest fixtures, and the broker that tests of clients talk to."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from halfmoon.server.build import build
from tests import chance, java_options, scheduling, several_workers
from tests.slices import checked_snapshots

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if "halfmoon" not in {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}:
    # A source tree that was not installed: nobody told pytest of the plugin.
    pytest_plugins = ["halfmoon.testing.pytest_plugin"]


chance.load_profile()

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_options.options())

for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        # The run was started in the background of a script, or under nohup, and what it starts would ignore the signal
        # too: some tests send it.
        signal.signal(_number, _default)


class _KafkaPythonSocket(socket.socket):
    """One that whoever made it may drop without closing it.

    kafka-python 3.0.12 does not close the socket of an attempt to connect that failed or that its close() overtook
    (KafkaNetSocket.sock_connect). Python warns when such a socket is freed, in whatever test that happens to be.
    """

    def __del__(self) -> None:
        self.close()


class _KafkaPythonTls(ssl.SSLSocket):
    """The same, where a handshake has failed (KafkaConnectionManager._build_transport)."""

    def __del__(self) -> None:
        self.close()


@pytest.fixture(scope="session", autouse=True)
def _snapshots_are_checked() -> Iterator[None]:
    with checked_snapshots():
        yield


@pytest.fixture(scope="session", autouse=True)
def _kafka_python_may_drop_sockets() -> Iterator[None]:
    try:
        from kafka.net.inet import KafkaNetSocket
        from kafka.net.transport import KafkaSSLTransport
    except ModuleNotFoundError:  # kafka-python 2
        yield
        return
    build_context = getattr(KafkaSSLTransport, "_build_ssl_context", None)  # 3.0.0 has none

    def context(config: dict[str, object]) -> ssl.SSLContext:
        found: ssl.SSLContext = build_context(config)
        found.sslsocket_class = _KafkaPythonTls
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaNetSocket, "socket", lambda _, *address: _KafkaPythonSocket(*address))
        if build_context is not None:
            patch.setattr(KafkaSSLTransport, "_build_ssl_context", staticmethod(context))
        yield


gc.disable()
"""Until all tests are collected: what that makes stays, and looking through it again and again took three times as long
as the rest. Nor is it looked through while tests run: that took a third of their time."""


def pytest_configure(config: pytest.Config) -> None:
    if several_workers.WORKERS:
        config.pluginmanager.register(several_workers.SeveralWorkers(several_workers.WORKERS), "several-workers")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before they are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if scheduling.is_long(item.nodeid):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("pure") and build() == "compiled":
            item.add_marker(pytest.mark.skip(reason="pure: compiled code does not see what it puts in its place"))
        if chance.TIMES:  # limits are for a run with the usual number of examples
            item.add_marker(pytest.mark.timeout(0), append=False)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    if config.getvalue("dist") != "loadfile":
        return None
    return scheduling.LongestFirst(config, log)


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """The session's broker as `host:port`.

    HALFMOON_TEST_BOOTSTRAP=HOST:PORT names another one, a real Kafka above all.
    """
    given = os.environ.get("HALFMOON_TEST_BOOTSTRAP")
    return given or str(request.getfixturevalue("halfmoon_broker").bootstrap_servers)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the whole test run: a JVM takes 5 s to start, and 1 GB.

    HALFMOON_TEST_SPARK_PACKAGES names other packages than Spark's connectors; empty, none.
    """
    from halfmoon.pipeline import session, stop

    packages = os.environ.get("HALFMOON_TEST_SPARK_PACKAGES")
    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    started = session("halfmoon-tests", avro=True, packages=packages, log_file=log_file)
    yield started
    stop(started)
