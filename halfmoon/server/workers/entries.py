"""What a shard tells the others of what its topics show among their configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from halfmoon.cluster.asking import Answers, Told
from halfmoon.cluster.messages import AskEntries, EntriesFound

if TYPE_CHECKING:
    from halfmoon.server.assembly import Node


def entries_answers(node: Node) -> Answers:
    kernel = node.kernel

    def answer(question: AskEntries, told: Told) -> None:
        rows = []
        for number in question.topics:
            topic = kernel.catalog.by_number.get(number)
            if topic is not None:
                rows.append((number, {k: v for each in kernel.features.topic_entries for k, v in each(topic).items()}))
        told(EntriesFound(rows))

    return {AskEntries: answer}
