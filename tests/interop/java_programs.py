"""Programs for the JVM that need more than Kafka's client: their jars by Maven, and their processes.

The folders of tests/interop/java have a pom.xml, which only says what is needed; the jars are kept in
~/.cache/halfmoon-interop (or XDG_CACHE_HOME). Programs of our own are single files of Java, which `java` compiles when
it starts them. So a JDK of version 17 is needed, and Maven the first time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "java"
QUIET = "log4j2.properties"
OPENED = [
    # What Flink needs of Java 17's own classes.
    "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
]  # fmt: skip


def jars(project: str) -> Path:
    """The folder with a project's jars. Skips the test where they are not there and cannot be had."""
    pom = HERE / project / "pom.xml"
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "halfmoon-interop"
    place = cache / f"java-{project}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if place.exists():
        return place
    if shutil.which("mvn") is None:
        pytest.skip("needs Maven: mvn is not installed (Debian: apt-get install maven)")
    unfinished = place.with_suffix(f".{os.getpid()}")
    # Not ~/.m2: Maven leaves the .pom of what it did not need there, and Spark would look for its .jar nowhere else.
    own = f"-Dmaven.repo.local={cache / 'maven'}"
    copied = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    try:
        subprocess.run(["mvn", "-q", "-B", own, "-f", str(pom), *copied], check=True)
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return place


def properties(path: Path, values: Mapping[str, object]) -> Path:
    """A file as Java's programs want them."""
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return path


class Program:
    """A JVM at work; what it prints is kept line by line, and is in a file beside its log."""

    def __init__(self, folder: Path, name: str, classpath: Path, *words: str, heap_mb: int = 512) -> None:
        """`words`: a class, or a file of Java, and its arguments."""
        folder.mkdir(parents=True, exist_ok=True)
        log4j = folder / QUIET
        if not log4j.exists():
            properties(log4j, {
                "appender.out.type": "Console", "appender.out.name": "out", "appender.out.target": "SYSTEM_ERR",
                "appender.out.layout.type": "PatternLayout", "appender.out.layout.pattern": "%d %p %c{1}: %m%n",
                "rootLogger.level": os.environ.get("HALFMOON_TEST_JAVA_LOG", "ERROR"),
                "rootLogger.appenderRef.out.ref": "out",
            })  # fmt: skip
        self.log_path = folder / f"{name}.log"
        self.lines: list[str] = []
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(
                [
                    "java", f"-Xmx{heap_mb}m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *OPENED,
                    f"-Dlog4j2.configurationFile={log4j.as_uri()}", "-cp", f"{classpath}/*", *words,
                ],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def says(self, line: str, timeout_s: float = 60) -> None:
        """Wait for a line."""
        end = time.monotonic() + timeout_s
        while line not in self.lines:
            assert self.process.poll() is None, self.report()
            assert time.monotonic() < end, f"it did not say {line!r}: {self.report()}"
            time.sleep(0.05)

    def ends(self, timeout_s: float) -> list[str]:
        """All it has printed; it has ended well."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it has not ended within {timeout_s} s: {self.report()}") from None
        self._reader.join(10)
        assert code == 0, self.report()
        return self.lines

    def stop(self, timeout_s: float = 60) -> None:
        """SIGTERM, which these programs take as the wish to end in good order."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        self._close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def report(self) -> str:
        return f"{self.lines[-20:]} {self.log_path.read_text()[-4_000:]}"


def source(project: str, name: str) -> str:
    """One of our programs."""
    return str(HERE / project / name)


def tool(classpath: Path, name: str, arguments: Sequence[str], timeout_s: float = 60) -> str:
    """What one of Kafka's command line tools prints, given the class behind its script."""
    done = subprocess.run(
        ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{classpath}/*", name, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]
    return done.stdout
