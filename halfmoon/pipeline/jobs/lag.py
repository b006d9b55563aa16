"""How far consumer groups have come: samples of their offsets, kept, and a report of lag now and over time.

Kafka's protocol knows what a group has committed now, and nothing of before. So whoever wants to see lag over time asks
again and again and keeps the answers. Spark's queries are shown as well where they write their progress as a group's
(group_progress.py). None of this needs Spark: it starts at once.

    OUT/lag.html                        the page; tables/ and charts/ as of the other reports
    OUT/_lag/FIRST_MS-WHO.parquet       samples, up to a thousand moments in a file
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow
from pyarrow import compute, parquet

from halfmoon.pipeline.admin import Admin, regular_expression
from halfmoon.pipeline.brokers import Bootstrap
from halfmoon.pipeline.reports.lag import lag_reports
from halfmoon.pipeline.reports.publish import PUBLISH_EVERY_S, Published, publish
from halfmoon.pipeline.reports.report import show, whole_file
from halfmoon.pipeline.steps import OnStep, Steps, ignored
from halfmoon.pipeline.times import interruptible_wait

MOMENTS_PER_FILE = 1_000
"""A file is written anew with every sample until it has so many, and then left alone."""

SCHEMA = pyarrow.schema(
    [
        pyarrow.field("at_ms", pyarrow.int64(), nullable=False),
        ("group", pyarrow.string()),
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("committed", pyarrow.int64()),
        ("end", pyarrow.int64()),
        ("lag", pyarrow.int64()),
    ]
)
_PLACE = ["at_ms", "group", "topic", "partition"]


class Sample(NamedTuple):
    """One partition of one group at a moment."""

    at_ms: int
    group: str
    topic: str
    partition: int
    committed: int
    end: int
    lag: int


def sample(
    admin: Admin, groups: str = ".*", on_group: Callable[[int, int], None] = lambda _done, _of: None
) -> list[Sample]:
    """What the groups whose names match a regular expression have committed, and where the topics end. Topics that are
    gone are left out. `on_group` hears how many of the groups have been asked. Raises PipelineError."""
    wanted = regular_expression(groups)
    names = [group for group in admin.groups() if wanted.fullmatch(group)]
    committed = {}
    for done, group in enumerate(names):
        on_group(done, len(names))
        committed[group] = admin.committed(group)
    there = set(admin.topics())
    ends = {topic: admin.ends(topic) for topic in {t for topics in committed.values() for t in topics} & there}
    at_ms = time.time_ns() // 1_000_000
    return [
        Sample(at_ms, group, topic, partition, offset, ends[topic][partition], max(0, ends[topic][partition] - offset))
        for group, topics in sorted(committed.items())
        for topic, partitions in sorted(topics.items())
        for partition, offset in sorted(partitions.items())
        if partition in ends.get(topic, {})
    ]


class Samples:
    """The samples in a directory on this machine, of this run and of earlier ones.

    Every sample is on the disk when `add` returns, whole or not at all. Several may write at once, each a file of its
    own. What an earlier run has left of a file that is not full yet is taken over: for a moment it is there twice, and
    counts once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._older, self._open, self._taken_over = self._read()
        self._path: Path | None = None

    @property
    def rows(self) -> pyarrow.Table:
        """All of them, with the columns of SCHEMA."""
        return _each_once(pyarrow.concat_tables([self._older, self._open]))

    def add(self, found: list[Sample]) -> None:
        """Keep the sample of one moment."""
        if not found:
            return
        columns = {name: [row[at] for row in found] for at, name in enumerate(Sample._fields)}
        self._open = pyarrow.concat_tables([self._open, pyarrow.table(columns, SCHEMA)]).combine_chunks()
        if self._path is None:
            first_ms = compute.min(self._open["at_ms"]).as_py()
            self._path = self._folder / f"{first_ms}-{secrets.token_hex(4)}.parquet"
        with whole_file(self._path) as part:
            parquet.write_table(self._open, part)
        for path in self._taken_over:
            path.unlink(missing_ok=True)
        self._taken_over = []
        if _moments(self._open) >= MOMENTS_PER_FILE:
            self._older = pyarrow.concat_tables([self._older, self._open])
            self._open, self._path = SCHEMA.empty_table(), None

    def _read(self) -> tuple[pyarrow.Table, pyarrow.Table, list[Path]]:
        """Full files; one that is not, and its path."""
        full, short, paths = SCHEMA.empty_table(), SCHEMA.empty_table(), []
        for path in sorted(self._folder.glob("[!.]*.parquet")):
            table = parquet.read_table(path, schema=SCHEMA)
            if _moments(table) >= MOMENTS_PER_FILE:
                full = pyarrow.concat_tables([full, table])
            else:
                short = pyarrow.concat_tables([short, table])
                paths.append(path)
        return full, _each_once(short), paths


def lag_report(
    out: Path,
    *,
    bootstrap: Bootstrap = None,
    groups: str = ".*",
    every_s: float | None = None,
    on_sample: Callable[[list[Sample]], None] = lambda _: None,
    on_tick: Callable[[], None] = lambda: None,
    on_step: OnStep = ignored,
) -> Published:
    """Look how far groups are, and make the report from that and from what earlier runs have seen.

    With `every_s` it goes on, and makes the report anew every ten seconds at most, until `on_tick`, which is called
    some times a second, raises something; `on_step` hears how far each round is. Raises PipelineError where the broker
    does not answer.
    """
    admin, kept = Admin(bootstrap), Samples(out / "_lag")
    published: Published | None = None
    due, published_at = time.monotonic(), 0.0
    while True:
        steps = Steps(["Asking the groups", "Tables, charts and the page"], on_step)
        steps.next()
        found = sample(admin, groups, partial(steps.at, unit="groups"))
        kept.add(found)
        on_sample(found)
        if published is None or time.monotonic() - published_at > PUBLISH_EVERY_S:
            steps.next()
            reports = lag_reports(kept.rows, found[0].at_ms if found else None)
            now = reports[0].dicts()
            facts = [
                ("groups", show(len({row["group"] for row in now}))),
                ("lag", show(sum(row["lag"] for row in now))),
            ]
            source = f"groups {groups!r} of {admin.bootstrap}"
            published = publish(out, "lag", "Lag of consumer groups", reports, facts, source)
            published_at = time.monotonic()
        if every_s is None:
            return published
        due = max(due + every_s, time.monotonic())
        interruptible_wait(due, on_tick)


def _moments(table: pyarrow.Table) -> int:
    return int(compute.count_distinct(table["at_ms"]).as_py())


def _each_once(table: pyarrow.Table) -> pyarrow.Table:
    others = [name for name in SCHEMA.names if name not in _PLACE]
    found = table.group_by(_PLACE).aggregate([(name, "max") for name in others])
    return found.rename_columns([name.removesuffix("_max") for name in found.column_names]).select(SCHEMA.names)
