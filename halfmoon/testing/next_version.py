"""The next version of this program, as far as a cluster's nodes are concerned: for tests of rolling upgrades.

`python -m halfmoon.testing.next_version …` is `halfmoon …`, and differs in what a version may add: the tables have one
more format, with a table and a column in every other one; records of the catalog, questions between nodes and what a
node tells of itself have one more field; and there is one more question.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterable
from typing import Any, Final

from halfmoon.cluster.postgres import schema

_TABLES: Final = ("cluster", "node", "shard", "object", "piece", "wal", "file", "change", "snapshot", "pin")
_MORE: Final = "\n".join(
    ["create table of_the_next_version (number integer primary key);"]
    + [f"alter table {table} add column more text not null default 'new';" for table in _TABLES]
)
NEXT: Final = schema.NEWEST + 1
"""The format of its tables."""


def become_it() -> None:
    """In a process of its own, before anything else of a cluster is imported."""
    scripts = [*schema._scripts(), (NEXT, _MORE)]
    schema._scripts = lambda: scripts
    schema.NEWEST = NEXT  # type: ignore[misc]

    from halfmoon.cluster import asking, messages
    from halfmoon.schema import control
    from halfmoon.server.nodes import known_nodes
    from halfmoon.server.workers import catalog_news, open_shards

    class ShardStarted(control.ShardStarted, frozen=True, tag="shard-started"):
        more: str = "new"

    class CatalogChanged(messages.CatalogChanged, frozen=True, tag="catalog"):
        more: str = "new"

    class ClientAddresses(known_nodes.ClientAddresses):
        more: str = "new"

    class NewQuestion(messages.Question, frozen=True, tag="of-the-next-version"):
        """To a process: something that only the next version knows."""

    def began(self: Any, numbers: Iterable[int]) -> None:
        for number in sorted(self.nodes.keys() & numbers):
            generation = self.nodes[number].kernel.generation
            self.changes.append_control(ShardStarted(number, generation, self.place.me))

    def connected(self: Any, process: int) -> None:
        known(self, process)
        self._links.ask_process(process, NewQuestion(), asking.nobody)

    known = catalog_news.CatalogNews.connected
    of_nodes: Any = known_nodes
    of_news: Any = catalog_news
    of_shards: Any = open_shards.OpenShards
    of_nodes.ClientAddresses, of_news.CatalogChanged = ClientAddresses, CatalogChanged
    of_news.CatalogNews.connected, of_shards.began = connected, began


if __name__ == "__main__":
    become_it()
    runpy.run_module("halfmoon", run_name="__main__")
