"""Directories of tables, listed and removed: on this machine's disk, or wherever Spark's Hadoop file systems reach.

Spark writes and reads tables itself; only what has no word in its API is here. With Spark Connect there is no JVM to
ask, so paths must be on a disk that this program and the server share.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pyspark.sql import SparkSession

from halfmoon.pipeline.connect import is_connected
from halfmoon.pipeline.errors import PipelineError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class Entry(NamedTuple):
    """One entry of a directory."""

    name: str
    is_directory: bool
    size: int
    """Bytes; of a directory whatever the file system says."""


class Files(Protocol):
    """A file system. Paths are as Spark takes them. Raises OSError, or Py4JJavaError where it is Hadoop's."""

    def entries(self, path: str) -> list[Entry]:
        """What a directory holds, sorted by name; nothing if it does not exist."""
        ...

    def remove(self, path: str) -> None:
        """A file or a whole directory; one that does not exist is no error."""
        ...

    def read(self, path: str) -> str | None:
        """A small text file; None if it does not exist."""
        ...

    def write(self, path: str, text: str) -> None:
        """A small text file, as a whole: readers see the old one or the new one."""
        ...

    def locked(self, path: str) -> AbstractContextManager[None]:
        """Keep other processes out of the block, as far as the file system can: a local disk can, others not.

        Raises PipelineError if somebody is in it.
        """
        ...


def files_at(spark: SparkSession, path: str) -> Files:
    """The file system that a path is on, as Spark takes it: one without a scheme is on Spark's default file system.

    Raises PipelineError for a path that cannot be reached from here.
    """
    scheme = _SCHEME.match(path)
    if is_connected(spark):
        if scheme is not None and scheme[1] != "file":
            raise PipelineError(f"{path}: with Spark Connect, only paths on a disk that is shared with the server work")
        return LocalFiles()
    default = str(spark._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///"))
    if (scheme[1] if scheme is not None else default.partition(":")[0]) == "file":
        return LocalFiles()
    return HadoopFiles(spark, path)


def _local(path: str) -> Path:
    """`/a`, `file:/a` and `file:///a` are the same to Hadoop."""
    return Path(re.sub(r"^file:/+", "/", path))


class LocalFiles:
    """This machine's."""

    def entries(self, path: str) -> list[Entry]:
        folder = _local(path)
        if not folder.is_dir():
            return []
        found = []
        for each in sorted(folder.iterdir()):
            try:
                found.append(Entry(each.name, each.is_dir(), each.stat().st_size))
            except FileNotFoundError:
                pass  # Spark has just finished with a temporary file of its own.
        return found

    def remove(self, path: str) -> None:
        target = _local(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def read(self, path: str) -> str | None:
        try:
            return _local(path).read_text()
        except FileNotFoundError:
            return None

    def write(self, path: str, text: str) -> None:
        target = _local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        with temporary.open("w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        target = _local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(f"another process is writing to {target.parent}") from None
            yield


class HadoopFiles:
    """Any file system that Hadoop knows, through the driver's JVM."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._fs = self._path(path).getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def entries(self, path: str) -> list[Entry]:
        where = self._path(path)
        if not self._fs.exists(where):
            return []
        found = [
            Entry(status.getPath().getName(), status.isDirectory(), status.getLen())
            for status in self._fs.listStatus(where)
        ]
        return sorted(found)

    def remove(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        yield

    def read(self, path: str) -> str | None:
        where = self._path(path)
        if not self._fs.exists(where):
            return None
        stream = self._fs.open(where)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        temporary = self._path(f"{path}.{os.getpid()}.tmp")
        stream = self._fs.create(temporary, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        # FileSystem.rename does not replace a file; FileContext's does, at once.
        replacing = self._gateway.new_array(getattr(self._jvm, "org.apache.hadoop.fs.Options$Rename"), 1)
        replacing[0] = getattr(self._jvm, "org.apache.hadoop.fs.Options$Rename").OVERWRITE
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._fs.getUri(), self._fs.getConf())
        context.rename(temporary, self._path(path), replacing)
