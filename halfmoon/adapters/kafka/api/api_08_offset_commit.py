"""OffsetCommit (8): a group's progress. Topics by name until version 9, by id in version 10 (KIP-848).

Who may commit is the group coordinator's to say (22, 25, 27, 82, 113; members of new groups need version 9, else 35);
what cannot be committed (unknown partition, metadata too long, or not the member's any more, since its epoch is an old
one) fails by itself and leaves the rest alone. The offset is stored as it comes: it may go back, and need not exist.
Retention times of versions 2 to 4 are ignored, since groups' offsets expire together (KIP-211).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.commits import Entry, read_entry
from halfmoon.adapters.kafka.durable import when_durable
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.group_errors import coordinator_code
from halfmoon.adapters.kafka.offset_commit_answer import BY_ID, OffsetCommitAnswer, PartitionResult, TopicResult
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.kafka_wire.slices import EVERY, Slices
from halfmoon.services.groups.service import GroupService

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Topic

AT_ONCE = 1_000
"""So many partitions are committed in one record of the log, and in one turn of the loop."""
WITH_EPOCHS = 9
"""From this version on a generation may be a member epoch (KIP-848)."""


def handle(ctx: Context, request: Any) -> Slices[object]:
    entries: list[Entry] = []
    results: list[TopicResult] = []
    committed: list[PartitionResult] = []
    for asked in request.topics:
        topic, missing = _find(ctx, asked)
        result = TopicResult(asked.name, asked.topic_id)
        results.append(result)
        for at, part in enumerate(asked.partitions):
            if at % EVERY == EVERY - 1:
                yield
            part_result = PartitionResult(part.partition_index)
            result.partitions.append(part_result)
            entry = read_entry(topic, part, part_result, missing)
            if entry is not None:
                committed.append(part_result)
                entries.append(entry)
    response = OffsetCommitAnswer(results)
    if not entries:
        return response
    # What is written together is checked together: the group may go on between two slices.
    position = 0
    written: list[PartitionResult] = []
    for first in range(0, len(entries), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        stored = _store(ctx, request, entries[some], committed[some])
        if stored is not None:
            position = max(position, stored)
            written += [each for each in committed[some] if each.error_code == NONE]
        if first + AT_ONCE < len(entries):
            yield
    return when_durable(ctx, position, response, written, _fail)


def _store(ctx: Context, request: Any, entries: list[Entry], results: list[PartitionResult]) -> int | None:
    """Commit these, or say in the results why not; the log position to wait for, None where nothing was written."""
    groups = ctx.services.get(GroupService)
    group_id, epoch, member_id = request.group_id, request.generation_id_or_member_epoch, request.member_id
    fault = groups.check_commit(
        group_id, epoch, member_id, request.group_instance_id, knows_epochs=ctx.api_version >= WITH_EPOCHS
    )
    if fault is not None:
        for result in results:
            result.error_code = _group_code(ctx, fault)
        return None
    stale = groups.stale(group_id, epoch, member_id, [entry[0] for entry in entries])
    if stale:
        for result, entry in zip(results, entries, strict=True):
            result.error_code = code(stale.get(entry[0]))
        entries = [entry for entry in entries if entry[0] not in stale]
        if not entries:
            return None
    try:
        return groups.record(group_id, entries, reset=epoch < 0)
    except BrokerError as error:
        for result in results:
            if result.error_code == NONE:
                _fail(result, error)
        return None


def _find(ctx: Context, asked: Any) -> tuple[Topic | None, int]:
    """The topic, or the code for one that is not there (0: nothing special)."""
    if ctx.api_version < BY_ID:
        return ctx.core.catalog.topic(asked.name), NONE
    topic = None if asked.topic_id is None else ctx.core.catalog.topic_by_id(asked.topic_id.bytes)
    return topic, NONE if topic is not None else code(Fault.UNKNOWN_TOPIC_ID)


def _group_code(ctx: Context, fault: Fault) -> int:
    if fault is Fault.GROUP_ID_NOT_FOUND and ctx.api_version < WITH_EPOCHS:
        # Clients of older versions know only this answer to a generation of a group that is not there.
        return code(Fault.ILLEGAL_GENERATION)
    return code(fault)


def _fail(result: Any, error: Exception) -> None:
    result.error_code = coordinator_code(error)
