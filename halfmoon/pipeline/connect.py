"""A session with a Spark Connect server: its queries go there over gRPC, and no JVM runs on this machine.

pyspark leaves two things to be done here. Its first request to a server that does not answer is repeated for ten
minutes, so the server is looked for before. And it notes in this process's environment that Connect is in use, which
decides what `pyspark.sql.functions` are: the note has to go with the session, or a local one after it would not work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.failures import raised_by_spark, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REACH_S = 5.0
"""How long a server may take to answer the first time: a new one that is just starting, or one across the ocean."""

_NOTE = "SPARK_CONNECT_MODE_ENABLED"


def connect(url: str, config: Mapping[str, str]) -> SparkSession:
    """A session with the server at `url` (sc://HOST:PORT, further settings after `/;`) with `config` set.

    Raises PipelineError if a package is missing, or the server does not answer within `REACH_S` or refuses.
    """
    place = _place(url)
    try:
        import pyspark.sql.connect.session  # noqa: F401 It looks for all that it needs.
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise PipelineError(f"Spark Connect: {_which(missing)}: pip install 'halfmoon[connect]'") from None
    try:
        _reach(url, place)
        session: SparkSession = SparkSession.builder.remote(url).config(map=dict(config)).getOrCreate()
        _ = session.version  # A first answer: Spark 3.5's client takes anything that speaks gRPC for a server.
    except raised_by_spark() as failed:
        disconnect(SparkSession.getActiveSession() if _NOTE in os.environ else None)
        raise PipelineError(f"the Spark Connect server at {place} refused: {reason(failed)}") from failed
    return session


def disconnect(session: SparkSession | None) -> None:
    """End the session on the server, if it is still there, and forget that Connect was in use."""
    if session is not None:
        _release(session)
        session.stop()
    if "SPARK_REMOTE" not in os.environ:
        os.environ.pop(_NOTE, None)


def is_connected(session: SparkSession) -> bool:
    """Whether the session is Spark Connect's, which has no SparkContext."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _place(url: str) -> str:
    """HOST:PORT of the URL, which is all that may be shown of it: it can hold a token."""
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port or 15002
    except ValueError:  # What stands for a port is no number.
        host = None
    if parts.scheme != "sc" or host is None:
        raise PipelineError(
            "remote is a Spark Connect server, sc://HOST:PORT; Spark on this machine is master='local[2]'"
        )
    return f"{host}:{port}"


def _which(missing: ImportError) -> str:
    return f"{missing.name} is not installed" if missing.name else reason(missing)


def _reach(url: str, place: str) -> None:
    """Wait until gRPC has a connection, through whatever proxy or TLS the URL and the environment ask for."""
    import grpc
    from pyspark.sql.connect.client import core

    # The name of the class that takes a URL changed in Spark 4.0.
    builder = getattr(core, "DefaultChannelBuilder", core.ChannelBuilder)
    with builder(url).toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=REACH_S)
        except grpc.FutureTimeoutError:
            raise PipelineError(f"no Spark Connect server answers at {place} within {REACH_S:.0f} s") from None


def _release(session: SparkSession) -> None:
    """Do what pyspark's stop() does first since Spark 4.0, without its ten minutes of tries if the server has gone."""
    if not hasattr(session, "release_session_on_close"):
        return
    session.client.set_retry_policies([])
    try:
        session.client.release_session()
    except raised_by_spark():
        pass  # It forgets a session that nobody uses any more by itself.
    session.release_session_on_close = False
