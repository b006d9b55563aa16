"""`halfmoon dlq`: list, show, replay, mark, purge and expire the dead letters of groups.

A replay produces each dead letter to the retry topic of its group (docs/retry.md), and names the dead letter as the
source (RETRY_OF). So the broker accepts each of them once, however often the command is run, and its log says where a
redelivered record came from; also where it was edited before.

A group may be configured to write its dead letters into another topic than `dlq.<group>`, and several groups may share
that topic. Its dead letters have a header with the group's name; in `dlq.<group>` those without it are that group's.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from halfmoon.cli import dlq_show, output
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, consumer, offsets_of, patiently
from halfmoon.cli.dlq_purge import expire, purge
from halfmoon.cli.dlq_replay import replay
from halfmoon.cli.dlq_selection import (
    DryRun,
    Group,
    Note,
    Selection,
    configured_topics,
    many,
    place_of,
    read,
    selected,
    whose,
)
from halfmoon.cli.dlq_state import Marks, Replays
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption
from halfmoon.schema.group_topics import giving_up_group

app = typer.Typer(help="List, show, replay, mark, purge and expire dead letters.", no_args_is_help=True)


@app.command("list")
@option_groups
def list_groups(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Shell pattern of group names.")] = "*",
    *,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """List groups with dead letters, and count these.

    Open are those that are neither replayed nor marked as handled. In JSON the count of all is
    `dead_letters`; `letters` is its deprecated name.
    """
    from kafka import TopicPartition

    from halfmoon.cli.admin_client import EARLIEST, LATEST

    found: list[tuple[str, str, dict[int, tuple[int, int]]]] = []
    """Group, topic, and its partitions' first offsets and ends."""
    rows: list[dict[str, Any]] = []
    with admin(brokers) as client:
        configured = configured_topics(client, [entry.group_id for entry in patiently(client.list_groups)])
        shared = {topic for topics in configured.values() for topic in topics}
        mixed = []
        for described in client.describe_topics():
            name = described["name"]
            group = giving_up_group(name)
            if name in shared:
                mixed.append(name)
            elif group is not None:
                queues = [TopicPartition(name, part["partition_index"]) for part in described["partitions"]]
                start, end = offsets_of(client, queues, EARLIEST, LATEST)
                found.append((group, name, {queue.partition: (start[queue], end[queue]) for queue in queues}))
    topics = [*mixed, *(topic for _, topic, _ in found)]
    replays, marks = Replays(brokers, topics), Marks(brokers, topics)
    for group, topic, bounds in found:
        marked = marks.within(topic, bounds)
        replayed = replays.count(group, topic, bounds)
        both = sum(bool(replays.has(group, place)) for place in marked)
        rows.append(_counted(group, topic, sum(end - start for start, end in bounds.values()), replayed, marked, both))
    if mixed:
        by_group: dict[tuple[str, str], list[Any]] = {}
        with consumer(brokers) as client:
            for record in read(client, mixed):
                by_group.setdefault((whose(record), record.topic), []).append(place_of(record))
        for (group, topic), places in by_group.items():
            marked = [place for place in places if marks.of(place) is not None]
            of_group = [bool(replays.has(group, place)) for place in places]
            both = sum(bool(replays.has(group, place)) for place in marked)
            replayed = sum(of_group) if replays.known else None
            rows.append(_counted(group, topic, len(places), replayed, marked, both))
    rows = [row for row in rows if fnmatchcase(row["group"], pattern)]
    rows.sort(key=lambda row: (row["group"], row["topic"]))
    output.rows(rows, ("group", "dead_letters", "replayed", "handled", "open", "topic"), result)


def _counted(group: str, topic: str, count: int, replayed: int | None, marked: list[Any], both: int) -> dict[str, Any]:
    """A row of the list. `both`: those of the marked that are replayed, too."""
    still_open = None if replayed is None else count - replayed - len(marked) + both
    return {
        "group": group, "dead_letters": count, "letters": count, "replayed": replayed, "handled": len(marked),
        "open": still_open, "topic": topic,
    }  # fmt: skip


@app.command()
@option_groups
def show(
    group: Group,
    full: Annotated[bool, typer.Option("--full", help="Each one whole: origin, cause, error, headers, value.")] = False,
    only_open: Annotated[bool, typer.Option("--open", help="Only those neither replayed nor handled.")] = False,
    *,
    selection: Selection,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Show a group's dead letters.

    With the original topic, the number of attempts, the reason, and whether it is replayed or marked as handled.
    """
    found = selected(brokers, group, selection)
    topics = sorted({record.topic for record in found})
    replays, marks = Replays(brokers, topics), Marks(brokers, topics)
    shown = [
        dlq_show.Shown(record, replays.has(group, place_of(record)), marks.of(place_of(record))) for record in found
    ]
    if only_open:
        shown = [each for each in shown if not each.replayed and each.mark is None]
    if result is Output.JSON:
        for each in shown:
            output.write(output.json_line(dlq_show.as_document(each)))
    elif full:
        dlq_show.print_whole(shown)
    else:
        dlq_show.print_table(shown)


app.command()(replay)


@app.command()
@option_groups
def mark(
    group: Group,
    note: Note = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take the mark off.")] = False,
    dry_run: DryRun = False,
    *,
    selection: Selection,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Mark dead letters as handled: a replay leaves them out.

    Marks are kept in a compacted topic, dlq-marks.GROUP.
    """
    found = selected(brokers, group, selection)
    marks = Marks(brokers, {record.topic for record in found})
    wanted = [record for record in found if (marks.of(place_of(record)) is not None) == undo]
    before = len(found) - len(wanted)
    if not dry_run:
        if undo:
            marks.take_off(wanted)
        else:
            marks.put_on(wanted, note)
    if result is Output.JSON:
        output.json_document(
            {"group": group, "dead_letters": len(wanted), "already": before, "undo": undo, "dry_run": dry_run}
        )
        return
    done = "not handled any more" if undo else "marked as handled"
    said = f"{many(len(wanted))} {'would be ' if dry_run else ''}{done}"
    output.line(f"{said}; {before} {'not marked' if undo else 'marked already'}" if before else said)


app.command()(purge)
app.command()(expire)
