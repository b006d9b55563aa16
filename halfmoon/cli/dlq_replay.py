"""`halfmoon dlq replay`: dead letters go to the group's retry topic, each once, edited before or as they are."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from halfmoon.cli import dlq_edit, output
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin, producer
from halfmoon.cli.dlq_edit import Draft
from halfmoon.cli.dlq_selection import DryRun, Group, Note, Place, Selection, many, place_of, selected
from halfmoon.cli.dlq_state import ACKNOWLEDGED_S, Marks, Replays, ensure_topic
from halfmoon.cli.errors import CliError
from halfmoon.cli.option_groups import option_groups
from halfmoon.cli.options import Output, OutputOption, key_values
from halfmoon.schema.group_topics import retry_topic

DROPPED = ("RECONSUME_TIME", "RETRY_OF", "MAX_RECONSUME_TIMES", "RETRY_ERROR_CLASS", "RETRY_ERROR_MESSAGE")
DROPPED_PREFIXES = ("__dlq.errors.", "halfmoon.")
"""Headers of earlier attempts: KIP-1191's, and the broker's own."""
MOST_EDITED = 20
"""Dead letters, in one command."""
REPLAYED = "replayed"


@option_groups
def replay(
    group: Group,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that are replayed, or marked as handled, already.")
    ] = False,
    mark_them: Annotated[bool, typer.Option("--mark", help="Mark them as handled, once they are replayed.")] = False,
    note: Note = REPLAYED,
    edit: Annotated[
        bool, typer.Option("--edit", help="Edit each in $EDITOR first; an empty file leaves it out.")
    ] = False,
    set_headers: Annotated[
        list[str], typer.Option("--set-header", metavar="NAME=VALUE", help="Set this header. Repeatable.")
    ] = [],
    remove_headers: Annotated[
        list[str], typer.Option("--remove-header", metavar="NAME", help="Without this header. Repeatable.")
    ] = [],
    key: Annotated[
        str | None, typer.Option("--key", help="Another key, of one dead letter.", show_default=False)
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", help="Another value, of one dead letter.", show_default=False)
    ] = None,
    value_file: Annotated[
        Path | None,
        typer.Option("--value-file", metavar="FILE", help="Another value: a file's content.", show_default=False),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Limit: records per second.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
    *,
    selection: Selection,
    brokers: Brokers,
    result: OutputOption = Output.TEXT,
) -> None:
    """Replay dead letters to the group's retry topic.

    Their attempt counter begins at zero. The broker accepts each of them once, so those that are replayed already are
    left out, and counted as `already_replayed`; so are those that are marked as handled. They stay in the dead-letter
    topic. In JSON the count is `dead_letters`; `letters` is its deprecated name.
    """
    headers = [(name, content.encode()) for name, content in key_values(set_headers, "--set-header").items()]
    other = _other_value(value, value_file)
    found = selected(brokers, group, selection)
    topics = sorted({record.topic for record in found})
    replays, marks = Replays(brokers, topics), Marks(brokers, topics)
    replayed = {place for place in map(place_of, found) if replays.has(group, place)}
    handled = {place for place in map(place_of, found) if marks.of(place) is not None} - replayed
    records = [record for record in found if again or place_of(record) not in replayed | handled]
    if (key is not None or other is not None) and len(records) > 1:
        raise CliError(f"{len(records)} dead letters are selected, and --key and --value are for one: --offset N")
    target = retry_topic(group)
    drafts = []
    for record in records:
        draft = dlq_edit.changed(
            dlq_edit.of_record(record, _is_dropped), set_headers=headers, remove_headers=remove_headers,
            key=None if key is None else key.encode(), value=other,
        )  # fmt: skip
        drafts.append((record, draft))
    if edit and not dry_run:
        drafts = _edited(drafts)
    if not dry_run and drafts:
        with admin(brokers) as client:
            ensure_topic(client, target)
        _send(brokers, drafts, target, rate, replayed)
        if mark_them:
            marks.put_on([record for record, _ in drafts], note)
    if result is Output.JSON:
        counts = dict.fromkeys(("dead_letters", "letters"), len(drafts))
        before = {"already_replayed": 0 if again else len(replayed), "handled": 0 if again else len(handled)}
        output.json_document({"group": group, **counts, **before, "topic": target, "dry_run": dry_run})
        return
    said = f"{many(len(drafts))} {'would be ' if dry_run else ''}replayed to {target}"
    if replayed and not again:
        said += f"; {len(replayed)} replayed already"
    if handled and not again:
        said += f"; {len(handled)} handled already"
    output.line(said)


def _is_dropped(name: str) -> bool:
    return name in DROPPED or name.startswith(DROPPED_PREFIXES)


def _other_value(value: str | None, file: Path | None) -> bytes | None:
    if value is not None and file is not None:
        raise typer.BadParameter("--value and --value-file exclude each other")
    if file is not None:
        return file.read_bytes()
    return None if value is None else value.encode("utf-8", "surrogateescape")


def _edited(drafts: list[tuple[Any, Draft]]) -> list[tuple[Any, Draft]]:
    """As somebody leaves them. Raises CliError."""
    if len(drafts) > MOST_EDITED:
        raise CliError(f"{len(drafts)} dead letters are selected; --edit opens at most {MOST_EDITED}: --offset N")
    found = []
    for record, draft in drafts:
        place = "/".join(map(str, place_of(record)))
        why = dict(record.headers).get("halfmoon.reason") or b""
        comments = (f"{place}: {why.decode('utf-8', 'replace')}", "An empty file leaves it out.")
        made = dlq_edit.edited(draft, comments, dlq_edit.in_editor)
        if made is not None:
            found.append((record, made))
    return found


def _send(
    brokers: Brokers, drafts: list[tuple[Any, Draft]], target: str, rate: float | None, replayed: Collection[Place]
) -> None:
    """All are acknowledged when it returns. `replayed`: those that the broker would ignore if it knew them. Raises
    KafkaError where the broker refuses one."""
    begun_s = time.monotonic()
    with producer(brokers, acks="all") as client, output.progress("dead letters", len(drafts)) as progress:
        waiting = []
        for number, (record, draft) in enumerate(drafts):
            if rate is not None:
                time.sleep(max(0.0, begun_s + number / rate - time.monotonic()))
            headers = [*draft.headers, ("TIMER_DELAY_MS", b"0")]
            if place_of(record) not in replayed:
                headers.append(("RETRY_OF", "/".join(map(str, place_of(record))).encode()))
            waiting.append(client.send(target, value=draft.value, key=draft.key, headers=headers))
            progress.advance()
        for sent in waiting:
            sent.get(ACKNOWLEDGED_S)
