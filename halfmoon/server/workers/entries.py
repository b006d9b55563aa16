"""What a shard tells the others of what its topics show among their configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halfmoon.cluster.asking import Told
from halfmoon.cluster.messages import AskEntries, EntriesFound, Question

if TYPE_CHECKING:
    from halfmoon.server.assembly import Node


def entries_answers(node: Node) -> dict[type[Question], Callable[[Any, Told], None]]:
    kernel = node.kernel

    def answer(question: AskEntries, told: Told) -> None:
        rows = []
        for number in question.topics:
            topic = kernel.catalog.by_number.get(number)
            if topic is not None:
                rows.append((number, {k: v for each in kernel.features.topic_entries for k, v in each(topic).items()}))
        told(EntriesFound(rows))

    return {AskEntries: answer}
