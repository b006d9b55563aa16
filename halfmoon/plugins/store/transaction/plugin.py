"""Half messages: sent, and delivered only when their producer commits them; asked about if it does not say (B31, B32,
B40).

All of it is done with records, so any Kafka client can:

1. A record with `TRAN_MSG=true`, `PGROUP` (the producers' group) and `UNIQ_KEY` (the transaction's name in it), sent
   to the topic it is meant for, is a *half message*. It waits in RMQ_SYS_TRANS_HALF_TOPIC, and nobody sees it.
2. A record to `halfmoon.transactions` with PGROUP, UNIQ_KEY and `TRAN_STATE` ends the transaction: `commit` delivers
   the message, `rollback` drops it, `unknown` leaves it as it is. It is not stored itself. The first end counts; what
   comes later, or is said of a message that nobody knows, changes nothing.
   One name is one message: a half message that has a name of one that waits is taken for the same, sent again.
3. A half message without an end is asked about: after `timeout`, then every `check_interval`, a copy of it comes in
   `check.<producer group>`, with the number of the check in TRAN_CHECK_TIMES and its topic in REAL_TOPIC. Whoever
   consumes that looks at what has become of the local transaction, and ends it as in 2.
4. After `check_max` checks, or `max_age`, it is rolled back, and kept in TRANS_CHECK_MAX_TIME_TOPIC.

Numbers and names: org.apache.rocketmq.broker.transaction.queue, TransactionalMessageServiceImpl and …Util.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta

from halfmoon.plugin import (
    BrokerError,
    ConfigSection,
    Fault,
    Feature,
    FeatureContext,
    PluginContext,
    PositiveDuration,
    PutInterceptor,
    Relay,
    Section,
    TopicPolicy,
    hookimpl,
)
from halfmoon.plugin.moving import Topic, Topics
from halfmoon.plugins.store.transaction import metrics
from halfmoon.plugins.store.transaction.half_messages import CHECK_PREFIX, END_TOPIC, HALF, HALF_TOPIC, Transactions

api_version = 1


class TransactionSettings(Section, frozen=True, kw_only=True):
    """`$.plugins.transaction`."""

    timeout_ms: PositiveDuration = 6_000
    """A half message is asked about after so long, …"""
    check_interval_ms: PositiveDuration = 30_000
    """… and then as often, …"""
    check_max: Annotated[int, Meta(ge=1, le=1_000)] = 15
    """… but no more than so many times."""
    max_age_ms: PositiveDuration = 72 * 3_600_000


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(TransactionSettings)


@hookimpl
def halfmoon_commitlog(ctx: PluginContext) -> list[PutInterceptor]:
    transactions = _transactions(ctx)
    return [
        PutInterceptor(
            "transaction-half",
            (HALF,),
            transactions.redirect_halves,
            scheduled_topics=(HALF_TOPIC,),
            in_slices=transactions.halves_in_slices,
        ),
        PutInterceptor(
            "transaction-end",
            (),
            transactions.end,
            topic_prefixes=(END_TOPIC,),
            in_slices=transactions.ends_in_slices,
            heard_by_all=True,
        ),
    ]


@hookimpl
def halfmoon_features(ctx: FeatureContext) -> list[Feature]:
    transactions = _transactions(ctx.plugin)
    kept = KeptTopics(ctx.topics, transactions)
    topics = TopicPolicy(provides=is_own_topic, deleting=kept.deleting)
    read = partial(metrics.read, transactions)
    return [Feature("transaction", topics=topics, families=metrics.FAMILIES, read_metrics=read)]


def is_own_topic(name: str) -> bool:
    """Whether producers end half messages there, or learn what they are asked."""
    return name == END_TOPIC or (name.startswith(CHECK_PREFIX) and len(name) > len(CHECK_PREFIX))


class KeptTopics:
    """Keeps the topics by which half messages end for as long as some wait."""

    def __init__(self, topics: Topics, transactions: Transactions) -> None:
        self._topics = topics
        self._transactions = transactions

    def deleting(self, topic: Topic) -> None:
        """Raises BrokerError(POLICY_VIOLATION) for a topic without which half messages could not end."""
        if not is_own_topic(topic.name):
            return
        half = self._topics.get(HALF_TOPIC)
        waiting = 0 if half is None else sum(len(each.pending or ()) for each in half.partitions)
        if topic.name != END_TOPIC and waiting == len(self._transactions):  # else some are not known yet
            waiting = self._transactions.open_of(topic.name[len(CHECK_PREFIX) :].encode())
        if waiting:
            raise BrokerError(Fault.POLICY_VIOLATION, f"{waiting} half messages wait that need topic '{topic.name}'")


@hookimpl
def halfmoon_relays(ctx: PluginContext) -> list[Relay]:
    transactions = _transactions(ctx)
    pause_ms = ctx.settings_as(TransactionSettings).check_interval_ms
    return [Relay("transaction", HALF_TOPIC, transactions.decide, transactions.begin, pause_ms)]


def _transactions(ctx: PluginContext) -> Transactions:
    """The hooks of one broker share it."""
    if ctx.memory is None:
        ctx.memory = Transactions(ctx, ctx.settings_as(TransactionSettings))
    assert isinstance(ctx.memory, Transactions)
    return ctx.memory
