"""A pipeline as a program of its own, to be killed: the supervisor that starts it, and the program that is started.

    driver.py stream {…}       an archive and a success-rate report of one topic, both going on and on
    driver.py replay {…}       an archive sent to another topic, once

It prints a line for each thing it does, so that whoever kills it can choose the moment. Python and its JVM have a
process group of their own. When Python dies alone, the JVM notices by its standard input, as in any pyspark program;
and when the tests die, the program notices by its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tests.spark.cluster import EVERYWHERE, program_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from halfmoon.pipeline.jobs.report_kinds import SuccessRate

END_S = 30.0
SLOW_S = 0.01
"""So long takes the removal of a file in the program: a kill hits the middle of a removal, which is short otherwise."""


class Driver:
    """The program as it is started again and again. What it prints goes to `lines`, what Spark says to `folder`."""

    def __init__(self, folder: Path, job: str, **arguments: Any) -> None:
        """`arguments`: what the job's function takes, and `jars`, Spark's connector."""
        self.folder = folder
        self.lines: list[str] = []
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        self._command = [sys.executable, __file__, job, json.dumps({**arguments, "folder": str(folder)})]
        java = f"{EVERYWHERE['JAVA_TOOL_OPTIONS']} -Djava.io.tmpdir={scratch}"
        self._environment = program_environment(
            TMPDIR=str(scratch), SPARK_LOCAL_DIRS=str(scratch), JAVA_TOOL_OPTIONS=java
        )
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._groups: list[int] = []

    def start(self) -> None:
        """Returns at once."""
        assert self._process is None
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, env=self._environment, start_new_session=True, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self._groups.append(self._process.pid)
        self._listener = threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listener.start()

    def kill(self, *, alone: bool) -> None:
        """kill −9, of Python `alone` or of its JVM as well."""
        process, self._process = self._process, None
        assert process is not None
        if alone:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        self._reap(process)

    def code(self) -> int | None:
        """Its exit code if it has ended by itself; then it can be started again."""
        process = self._process
        assert process is not None
        code = process.poll()
        if code is not None:
            self._process = None
            self._reap(process)
        return code

    def wait_for_the_end(self) -> None:
        """Until nothing of what was started and killed is running any more."""
        deadline_s = time.monotonic() + END_S
        while left := self._running():
            assert time.monotonic() < deadline_s, f"process groups {left} did not end within {END_S} s"
            time.sleep(0.05)

    def end(self) -> None:
        """Kill whatever there still is of it, and see it gone."""
        for group in self._running():
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass  # It has just ended.
        if self._process is not None:
            self._reap(self._process)
            self._process = None
        self.wait_for_the_end()

    def log(self) -> str:
        """The end of what it and Spark have said."""
        logs = (self.folder / name for name in ("driver.log", "spark.log"))
        return "\n".join(log.read_text(errors="replace")[-3_000:] for log in logs if log.exists())

    def _listen(self, out: IO[str]) -> None:
        with out:
            for line in out:
                self.lines.append(line.rstrip("\n"))

    def _running(self) -> list[int]:
        """Its process groups that have members, zombies aside. One that has ended is never asked for again."""
        listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
        there = {int(group) for group, state in map(str.split, listed.splitlines()) if not state.startswith("Z")}
        self._groups = [group for group in self._groups if group in there]
        return self._groups

    def _reap(self, process: subprocess.Popen[str]) -> None:
        process.wait(END_S)
        assert self._listener is not None
        assert process.stdin is not None
        self._listener.join(END_S)
        process.stdin.close()


# -- the program -------------------------------------------------------------------------------------------------------


def say(what: str) -> None:
    # In one piece: print() writes the end of the line by itself, and two threads' lines would be mixed.
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main(job: str, arguments: str) -> None:
    threading.Thread(target=_end_with_the_tests, daemon=True).start()
    given = json.loads(arguments)
    folder = Path(given.pop("folder"))
    say("begins")
    from halfmoon.pipeline import session

    # With the jars the tests' own session has: nothing is to be resolved, and killed in the middle of a download.
    spark = session(job, packages="", config={"spark.jars": given.pop("jars")}, log_file=folder / "spark.log")
    say("started")
    {"stream": stream, "replay": send}[job](spark, **given)


def stream(spark: SparkSession, bootstrap: str, topic: str, archived: str, out: str) -> None:
    """Both jobs in threads of one session, until one of them fails."""
    from halfmoon.pipeline.jobs import archive, reporting

    archive.COMPACT_EVERY = 3
    archive.compact = _told(archive.compact)
    reporting.PUBLISH_EVERY_S = 1.5
    os.unlink = _slowly(os.unlink)

    def archiving() -> None:
        archive.archive(
            spark, topic, archived, bootstrap=bootstrap, every="300 milliseconds", batch_records=150,
            group="archive", on_batch=lambda batch: say(f"archive batch {batch.number} of {batch.rows}"),
        )  # fmt: skip

    def report() -> None:
        reporting.report_stream(
            spark, success_rate(topic), Path(out), bootstrap=bootstrap, every="300 milliseconds", batch_records=200,
            group="report", on_batch=lambda batch: say(f"report batch {batch.number} of {batch.rows}"),
            on_publish=lambda _: say("published"),
        )  # fmt: skip

    for job in (archiving, report):
        threading.Thread(target=_or_end, args=(job,), name=job.__name__, daemon=True).start()
    threading.Event().wait()


def send(spark: SparkSession, bootstrap: str, topic: str, archived: str, target: str, rate: float) -> None:
    from halfmoon.pipeline import stop
    from halfmoon.pipeline.jobs.replay import replay

    done = replay(
        spark, archived, topic, target, bootstrap=bootstrap, rate=rate,
        on_progress=lambda done, total: say(f"replayed {done} of {total}"),
    )  # fmt: skip
    say(f"done {done.sent} {done.found}")
    stop(spark)


def success_rate(topic: str) -> SuccessRate:
    """The report by the rules of test_success_rate.py, which says when it is being made."""
    from halfmoon.pipeline.jobs.report_kinds import SuccessRate
    from tests.spark.test_success_rate import RULES

    class Told(SuccessRate):
        def parts(self, kept: Any, as_of: Any) -> Any:
            say("publishing")
            return super().parts(kept, as_of)

    return Told(topic, rules=RULES)


def _told(compact: Callable[..., Any]) -> Callable[..., Any]:
    def told(*arguments: Any, **named: Any) -> Any:
        say("compacting")
        done = compact(*arguments, fewest_files=3, **named)
        say(f"compacted {done.files_before} to {done.files_after}")
        return done

    return told


def _slowly(unlink: Callable[..., None]) -> Callable[..., None]:
    def slowly(path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:  # shutil.rmtree's, of a folder that was merged
            say("removing")
            time.sleep(SLOW_S)
        unlink(path, dir_fd=dir_fd)

    return slowly


def _or_end(job: Callable[[], None]) -> None:
    try:
        job()
    except BaseException as failed:
        traceback.print_exc()
        say(f"failed {job.__name__} {type(failed).__name__}: {failed}")
        os._exit(1)


def _end_with_the_tests() -> None:
    sys.stdin.read()
    os._exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
