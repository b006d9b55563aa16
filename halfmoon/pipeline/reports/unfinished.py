"""The page of a report while it is being computed: the plan, the step that is being done, how far that is.

There are two forms. Where OUT has no page yet, one stands there that shows the steps and reloads itself until the
report takes its place. A page of an earlier report stays as it is, with a line above it. Both say when they were
written: after kill -9 nobody takes them away, and the next run does.

A run that fails or is interrupted puts the earlier page back, byte for byte; where there was none, the page says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from halfmoon.pipeline.reports.page import CONTENT, beginning, escaped
from halfmoon.pipeline.reports.report import whole_file
from halfmoon.pipeline.steps import Step

RELOAD_S, RELOAD_BESIDE_S = 2, 10
"""How often a browser reads the page again; a reader of the earlier report is disturbed less often."""

WRITE_EVERY_S = 1.0
"""News within a step is written so often at most."""

_BEGIN, _END = "<!-- making -->", "<!-- made -->"
_LEFT = re.compile(rf"{_BEGIN}.*?{_END}", re.DOTALL)


class UnfinishedPage:
    """A listener for `Steps` that writes the page at `path`. `finished` is called when the report stands there."""

    def __init__(
        self, path: Path, title: str, source: str,
        *, clock: Callable[[], float] = time.monotonic, now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:  # fmt: skip
        self._path, self._title, self._source = path, title, source
        self._clock, self._now = clock, now
        self._before = _earlier(path)
        self._step: Step | None = None
        self._began: dict[int, float] = {}
        self._written_at = 0.0
        self._finished = False

    def __call__(self, step: Step) -> None:
        """A step has begun, or more of it is done."""
        if self._finished:
            return
        before, self._step = self._step, step
        if before is None or (before.plan, before.number) != (step.plan, step.number):
            if before is None or before.plan != step.plan:
                self._began.clear()
            self._began[step.number] = self._clock()
        elif self._clock() - self._written_at < WRITE_EVERY_S:
            return
        self._written_at = self._clock()
        self._write(self._whole(step) if self._before is None else self._beside(step, self._before))

    def finished(self) -> None:
        """The report has taken the place of this page, which is left alone from now on."""
        self._finished = True

    def failed(self) -> None:
        """There will be no report of this run."""
        if self._finished or self._step is None:
            return
        self._finished = True
        self._write(self._not_made(self._step) if self._before is None else self._before)

    def _whole(self, step: Step) -> str:
        lines = [
            *beginning(self._title, _reload(RELOAD_S)),
            *self._head("being made"),
            *self._steps(step),
            f'<p class="small">This page reloads every {RELOAD_S} s until the report is here. Written {self._time()}.'
            " A much older time means that the run was killed.</p>",
            "</main></body></html>",
        ]
        return "\n".join(lines) + "\n"

    def _beside(self, step: Step, before: str) -> str:
        note = f" ({step.note})" if step.note else ""
        said = (
            f"A new report is being made: step {step.number} of {len(step.plan)}, {step.what}{note}."
            f" Below is the one before. Written {self._time()}."
        )
        line = f'<aside class="making"><p>{escaped(said)}</p></aside>'
        marked = f"{_marked(_reload(RELOAD_BESIDE_S))}{CONTENT}{_marked(line)}"
        return before.replace(CONTENT, marked, 1)

    def _not_made(self, step: Step) -> str:
        lines = [
            *beginning(self._title),
            *self._head("not made"),
            f"<p>The run ended at {self._time()} in step {step.number} of {len(step.plan)}, {escaped(step.what)},"
            " before the report was made. The terminal says why.</p>",
            "</main></body></html>",
        ]
        return "\n".join(lines) + "\n"

    def _head(self, state: str) -> Iterator[str]:
        yield f'<header><h1>{escaped(self._title)}</h1><p class="small">{escaped(self._source)} · {state}</p></header>'

    def _steps(self, step: Step) -> Iterator[str]:
        yield '<ol class="steps">'
        for number, what in enumerate(step.plan, 1):
            if number > step.number:
                yield f'<li class="later">{escaped(what)}</li>'
                continue
            took = f'<span class="took"> · {self._seconds(number):,.1f} s</span>'
            if number < step.number:
                yield f"<li>{escaped(what)}{took}</li>"
                continue
            note = f'<span class="took"> · {escaped(step.note)}</span>' if step.note else ""
            known = f' max="{step.of}" value="{min(step.done, step.of)}"' if step.of else ""
            bar = f'<progress{known} aria-label="{escaped(what)}"></progress>'
            yield f'<li class="now" aria-current="step">{escaped(what)}{note}{took}{bar}</li>'
        yield "</ol>"

    def _seconds(self, number: int) -> float:
        """How long a step has taken, or does so far."""
        now = self._clock()
        return self._began.get(number + 1, now) - self._began.get(number, now)

    def _time(self) -> str:
        return f"{self._now():%Y-%m-%d %H:%M:%S} UTC"

    def _write(self, page: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self._path) as part:
                part.write_text(page, encoding="utf-8", newline="\n")
        except OSError:
            pass  # What is wrong with the disk, the report itself will say.


@contextmanager
def unfinished_page(out: Path, name: str, title: str, source: str) -> Iterator[UnfinishedPage]:
    """The page OUT/NAME.html during the block, which writes the report there and then calls `finished`."""
    page = UnfinishedPage(out / f"{name}.html", title, source)
    try:
        yield page
    except BaseException:
        page.failed()
        raise


def _earlier(path: Path) -> str | None:
    """The page of an earlier report, without what a killed run has added to it."""
    try:
        found = path.read_bytes().decode()
    except (OSError, ValueError):
        return None
    page = _LEFT.sub("", found)
    return page if "<section" in page else None


def _marked(html: str) -> str:
    return f"{_BEGIN}{html}{_END}"


def _reload(seconds: int) -> str:
    return f'<meta http-equiv="refresh" content="{seconds}">'
