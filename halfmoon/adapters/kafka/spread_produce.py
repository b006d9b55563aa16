"""Produce in a process that has several shards: each batch is appended in the shard that its partition lies in.

Most requests are about one shard, and cost one look more. Of the others each shard gets its part, as if the client had
sent several requests; the answer is put together, in the order of the request, when all parts are durable. The shards'
logs know nothing of each other: what one has refused or lost is so in its own partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.api import api_00_produce
from halfmoon.adapters.kafka.late_produce import LateAnswer, failed
from halfmoon.adapters.kafka.produce_checks import refused, topic_of, unheard_error
from halfmoon.adapters.kafka.produce_codec import (
    FEW,
    ManyBatchesError,
    ProduceBody,
    Results,
    Stored,
    encode,
    parse,
    parse_in_slices,
)
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.shards import Home, Homes, after_all, at, when_all
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.core.catalog.topics import Topic
from halfmoon.core.records.batch_header import check_batch, without_producer
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.steps import AskingSlices

Part = tuple[Context, ProduceBody]
"""What one shard gets of a request."""


def handle(homes: Homes, ctx: Context, body: memoryview) -> object:
    try:
        request = parse(body, ctx.api_version, FEW)
    except ManyBatchesError:
        return ManyParts(homes, ctx).take(ctx.peer.keep(body))
    heard = _heard(homes, ctx, request)
    parts = _parts(homes, ctx, request, _acks(request, heard))
    if len(parts) == 1 and not heard:
        return api_00_produce.answer(*parts[0])
    answers = [api_00_produce.answer(*part, encoded=False) for part in parts]
    _go_on_together(ctx, [each for each in answers if isinstance(each, LateAnswer)])
    return _together(homes, ctx, request, answers, heard)


Heard = tuple[str | bytes, Topic, int, bytes]
"""A batch that all shards have to hear of: its topic as the client has it, and as it is, its partition, and a copy."""


def _heard(homes: Homes, ctx: Context, request: ProduceBody) -> list[Heard]:
    """The batches that all shards have to hear of."""
    found: list[Heard] = []
    if not homes.everywhere:
        return found
    for key, batches in request.topics:
        topic = topic_of(ctx.core, key)
        if topic is None or topic.name not in homes.everywhere:
            continue
        for index, records in batches:
            if records is not None and homes.is_here(topic, index):
                try:
                    check_batch(records, topic.rules.max_message_bytes)
                except BrokerError:  # it is refused where it is appended
                    continue
                found.append((key, topic, index, without_producer(records)))
    return found


def _acks(request: ProduceBody, heard: Sequence[Heard]) -> int:
    """What the shards are told. All hear of what the own shard has accepted, so that has to be known."""
    return 1 if heard and request.acks == 0 else request.acks


def _go_on_together(ctx: Context, late: Sequence[LateAnswer]) -> None:
    """What was kept of the request is needed until all parts are appended, and so long the next one waits."""
    left = len(late)

    def appended() -> None:
        nonlocal left
        left -= 1
        if not left:
            ctx.peer.go_on()

    for each in late:
        each.go_on = appended


def _together(
    homes: Homes, ctx: Context, request: ProduceBody, answers: Sequence[object], heard: Sequence[Heard]
) -> object:
    """One answer, of Results that are there, or come later."""
    if not heard:
        if request.acks == 0:
            return when_all(answers, lambda _: None)
        return when_all(answers, lambda found: encode(_in_order(request, found), ctx.api_version))

    def stored(found: list[Any]) -> object:
        results = _in_order(request, found)
        accepted = [each for each in heard if _is_accepted(results, each[0], each[2])]

        def all_have(refusals: list[Any]) -> object:
            for (key, _, index, _), refusal in zip(accepted, refusals, strict=True):
                if refusal is not None:
                    _not_heard(results, key, index)
            return unheard_error(results) if request.acks == 0 else encode(results, ctx.api_version)

        return when_all([homes.tell_all(topic, index, batch) for _, topic, index, batch in accepted], all_have)

    return after_all(answers, stored)


def _is_accepted(results: Results, key: str | bytes, index: int) -> bool:
    """Whether the batch's own shard has appended it. It knows what its client may do, and the others do not ask."""
    return all(
        not each.error_code for topic, stored in results if topic == key for each in stored if each.index == index
    )


def _not_heard(results: Results, key: str | bytes, index: int) -> None:
    """Not all shards have heard of a batch: its client sends it again."""
    error = BrokerError(Fault.NOT_ENOUGH_REPLICAS, "not all shards can be reached now")
    for topic, stored in results:
        if topic == key:
            stored[:] = [refused(index, error) if each.index == index else each for each in stored]


def _parts(homes: Homes, ctx: Context, request: ProduceBody, acks: int) -> list[Part]:
    """What nobody here owns goes to one of the shards, which says so."""
    bodies: dict[int, tuple[Home, ProduceBody]] = {}
    core = ctx.core
    for key, batches in request.topics:
        topic = topic_of(core, key)
        for index, records in batches:
            home = homes.home_of(topic, index)
            found = bodies.get(id(home.core))
            if found is None:
                part = ProduceBody(request.transactional_id, acks, [])
                found = bodies[id(home.core)] = home, part
            topics = found[1].topics
            if not topics or topics[-1][0] is not key:
                topics.append((key, []))
            topics[-1][1].append((index, records))
    if not bodies:
        bodies[0] = homes.stays(), request  # of no batch
    return [(at(home, ctx), part) for home, part in bodies.values()]


def _in_order(request: ProduceBody, found: Sequence[Results]) -> Results:
    """The results of all parts, as they were asked for."""
    by_place: dict[tuple[str | bytes, int], list[Stored]] = {}
    for results in found:
        for key, stored in results:
            for each in stored:
                by_place.setdefault((key, each.index), []).append(each)
    # A partition that is named twice has two results, in their order.
    return [(key, [by_place[key, index].pop(0) for index, _ in batches]) for key, batches in request.topics]


class ManyParts:
    """A request of very many batches: read, and appended, in slices, one shard after the other."""

    def __init__(self, homes: Homes, ctx: Context) -> None:
        self._answer = Deferred()
        self._homes = homes
        self._ctx = ctx
        self._late: list[LateAnswer] = []
        self._request: ProduceBody | None = None
        self._heard: list[Heard] = []

    def take(self, body: memoryview) -> Deferred:
        """All of it is to be done; returns the answer."""
        peer = self._ctx.peer
        peer.soon(lambda: run_steps(self._take(body), peer.in_thread, self._appended, self._failed, peer.soon))
        return self._answer

    def _take(self, body: memoryview) -> AskingSlices[None]:
        """Raises MalformedRequest."""
        self._request = request = yield from parse_in_slices(body, self._ctx.api_version)
        self._heard = _heard(self._homes, self._ctx, request)
        acks = _acks(request, self._heard)
        for ctx, part in _parts(self._homes, self._ctx, request, acks):
            late = LateAnswer(ctx, [], 0, None, acks, encoded=False)
            self._late.append(late)
            yield from late.take_request(part)

    def _appended(self, _: None) -> None:
        assert self._request is not None
        for late in self._late:
            late.wait()
        whole = _together(self._homes, self._ctx, self._request, self._late, self._heard)
        if isinstance(whole, Deferred):
            whole.then(self._answer.complete)
        else:
            self._answer.complete(whole)
        self._ctx.peer.go_on()

    def _failed(self, error: Exception) -> None:
        self._answer.complete(failed(self._ctx, error))
        self._ctx.peer.go_on()
