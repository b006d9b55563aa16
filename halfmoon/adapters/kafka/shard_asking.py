"""Asking the shards of all processes, on behalf of one request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from halfmoon.adapters.kafka.registry import Deferred
from halfmoon.adapters.kafka.shards import when_all
from halfmoon.cluster.asking import Asking, refused
from halfmoon.cluster.messages import Question
from halfmoon.errors import BrokerError, Fault

Answers = Mapping[int, object]
"""By shard: an answer, or a BrokerError."""


class AllShards(Struct, frozen=True):
    """The shards that share the topics: a service, where there are several processes."""

    asking: Asking
    """Asks again where a shard cannot be reached: a client waits for the answer."""
    count: int
    here: Collection[int]
    """Those of this process, at each moment."""
    shard_of: Callable[[int, int], int]
    """(topic number, partition) → its shard; −1 where nobody knows the partition."""

    def elsewhere(self) -> list[int]:
        return [shard for shard in range(self.count) if shard not in self.here]

    def ask(self, questions: Mapping[int, Question], then: Callable[[Answers], object]) -> object:
        """Ask each of these shards its question; what `then` makes of the answers."""
        shards = list(questions)
        waiting = []
        for shard in shards:
            deferred = Deferred()
            self.asking.ask(shard, questions[shard], deferred.complete)
            waiting.append(deferred)
        return when_all(waiting, lambda answers: then(dict(zip(shards, answers, strict=True))))

    def by_shard(self, places: Iterable[tuple[int, int]]) -> dict[int, list[tuple[int, int]]]:
        """(topic number, partition), by the shards in which they lie; what nobody knows is left out."""
        found: dict[int, list[tuple[int, int]]] = {}
        for place in places:
            shard = self.shard_of(*place)
            if shard >= 0:
                found.setdefault(shard, []).append(place)
        return found


def refusals(answers: Answers) -> dict[int, BrokerError]:
    """By shard, of those that have refused or cannot be reached. A client of the group's coordinator asks again later:
    it has no business with the shard."""
    found = {shard: error for shard, answer in answers.items() if (error := refused(answer)) is not None}
    return {
        shard: BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, f"shard {shard} cannot be reached now")
        if error.fault is Fault.NOT_LEADER_OR_FOLLOWER
        else error
        for shard, error in found.items()
    }
