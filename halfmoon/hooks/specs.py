"""The hooks: every place where a plugin can join in, and the only ones the built-in plugins use.

Beside each stands when it is called, what it costs, and what an error does. "Called" means the objects it gives; the
hook itself is called once, when the broker starts, in the order of broker.yaml's plugins (built-in ones first; pluggy's
`tryfirst` and `trylast` move an implementation). The exceptions are the events at the end.

An implementation may leave out arguments it does not use, as pluggy allows, and may be no wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pluggy

from halfmoon.config.topic_configs import TopicConfig, TopicConfigPrefix
from halfmoon.core.features import Feature
from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.features import FeatureContext
from halfmoon.hooks.types import (
    Command,
    ConfigSection,
    Dispatcher,
    FetchFilter,
    FilterCompiler,
    HoldPolicy,
    KafkaApi,
    Observer,
    PutInterceptor,
    Relay,
    Service,
    TopicChange,
)
from halfmoon.services.configs.group_configs import GroupConfig
from halfmoon.services.groups.allocation import AnyAllocator

PROJECT = "halfmoon"
hookspec = pluggy.HookspecMarker(PROJECT)

# A specification has a docstring for a body.
# mypy: disable-error-code="empty-body"


@hookspec
def halfmoon_config() -> ConfigSection:
    """The types of the plugin's settings.

    Called: before every other hook of the plugin, in the thread that starts the broker. Cost: none later. Error: the
    broker does not start.
    """


@hookspec
def halfmoon_topic_configs() -> Sequence[TopicConfig | TopicConfigPrefix]:
    """Offer configurations of topics.

    Called: once, before recovery, in the thread that starts the broker; `check` in the loop, when a topic is created or
    altered. Cost: none later. Error: a name that exists stops the start; a `check` that raises ValueError refuses the
    value.
    """


@hookspec
def halfmoon_group_configs(ctx: PluginContext) -> Sequence[GroupConfig]:
    """Offer configurations of groups.

    Called: once, before recovery, in the thread that starts the broker; `check` in the loop, when a group's
    configurations are altered; `default` in the loop, when they are described. Cost: none later. Error: a name that
    exists stops the start; a `check` that raises ValueError refuses the value.
    """


@hookspec
def halfmoon_features(ctx: FeatureContext) -> Sequence[Feature]:
    """Add a feature to the broker, as a record of functions.

    Called: once, after recovery and before any service or relay starts; the functions of a `Feature` in the loop, at
    the moments that their names say. Cost: a function that is None costs nothing. Error: in the hook or in `restore`,
    the broker does not start; `TopicPolicy` may refuse with BrokerError; the caller logs any other exception.
    """


@hookspec
def halfmoon_commitlog(ctx: PluginContext) -> Sequence[PutInterceptor]:
    """Change, redirect or refuse batches before they are stored.

    Called: in the loop, for each produced batch whose bytes contain a declared header name. Cost: a byte search per
    batch and name (30 GB/s; names with a common prefix count once; compressed batches are decompressed first) for
    topics with feature headers, plus the time of `before_put`. Error: the broker refuses the batch as a whole; a
    BrokerError gives the fault, any other exception is UNKNOWN_SERVER_ERROR, logged and counted.
    """


@hookspec
def halfmoon_dispatch(ctx: PluginContext) -> Sequence[Dispatcher]:
    """Follow the log and derive something from it.

    Called: in the loop, after each fdatasync, with every batch that has become durable, produced or relayed; a
    transactional batch when its transaction has ended. `checkpoint` every 5 s and at the stop; `restore` at the start.
    Cost: about 10 µs per batch and dispatcher, none without a dispatcher. Error: that dispatcher halts at its
    checkpoint until the next start, and health turns red; it is counted, and the others continue.
    """


@hookspec
def halfmoon_hold(ctx: PluginContext) -> Sequence[HoldPolicy]:
    """Decide which arrivals answer a held request.

    Called: in the loop, per parked request and per arrival it waits for; all policies must agree. Cost: one call per
    held request and arrival, so keep it under a microsecond; none without a policy. Error: the broker answers that
    request with the messages that are there; it logs one error per policy, and counts all.
    """


@hookspec
def halfmoon_fetch(ctx: PluginContext) -> Sequence[FetchFilter]:
    """Leave records out of what readers get, although they are in the log.

    Called: in the loop, at each read, for each record with a declared header. Cost: a byte search per
    batch and name that is read, of any topic (compressed batches are decompressed first); a batch with such a header is
    opened, and written anew where a record is left out; none where no plugin has it. Error: the record is delivered;
    logged once per filter, and counted.
    """


@hookspec
def halfmoon_relays(ctx: PluginContext) -> Sequence[Relay]:
    """Decide what happens to the scheduled messages of an internal topic.

    Called: in the loop: `begin` per message that is scheduled, and after a start per scheduled message; `decide` per
    message that is due. Cost: one call each, none for other topics. Error: logged and counted, and the broker asks
    again after 10 s.
    """


@hookspec
def halfmoon_filters(ctx: PluginContext) -> Mapping[str, FilterCompiler]:
    """Offer filter languages: name → compile(expression).

    Called: in the loop: `compile` per subscription (FilterSyntaxError refuses it), `match` per record in which its
    needle occurs; in a thread for large batches if the filter `takes_long`. Cost: none for topics without a filter.
    Error: counts as no match; the broker counts these errors.
    """


@hookspec
def halfmoon_allocators(ctx: PluginContext) -> Mapping[str, AnyAllocator]:
    """Offer allocation strategies: name → pure function of (members, queues), see halfmoon.services.groups.allocation.

    Called: in the loop, per rebalance and topic, or once for all topics if the strategy asks for that. Cost: none
    between rebalances. Error: the group keeps its last assignment, and health turns yellow; in a Kafka client
    (`halfmoon.kafka.assignor`) the exception reaches the caller.
    """


@hookspec
def halfmoon_services(ctx: PluginContext) -> Sequence[Service]:
    """Run something beside the broker, in its event loop.

    Called: `run()` once the broker accepts requests; the broker cancels it when it stops. Cost: its own; code that
    blocks the loop blocks all clients. Error (returning counts as one): the broker restarts it with backoff; health
    turns red after repeated failures.
    """


@hookspec
def halfmoon_commands(ctx: PluginContext) -> Mapping[str, Command]:
    """Add commands to the `halfmoon` command line: name → a function as typer takes it.

    Called: when the user runs that command, in a process of its own without a broker; the plugins are those that are
    enabled in the file that HALFMOON_CONFIG names, or in ./broker.yaml. Cost: none for the broker, nor for other
    commands except `halfmoon --help`, which imports these plugins. Error: the command's own. The command line refuses a
    name that it has itself.
    """


@hookspec
def halfmoon_observers(ctx: PluginContext) -> Sequence[Observer]:
    """Count what happens.

    Called: in the loop, per batch that a client produces (`on_produced`) or the log refuses (`on_refused`), per
    partition of an answer to a Fetch, a ShareFetch or a pull (`on_fetched`), and when messages of a group are
    acknowledged, redelivered or dead-lettered (`on_acknowledged`, `on_redelivered`, `on_dead_lettered`).
    Cost: one call each, none where nobody observes. Error: logged once and counted, and that observer is called no
    more.
    """


@hookspec
def halfmoon_authorize(
    principal: str | None, client_host: str, operation: str, resource_type: str, resource: str
) -> bool | None:
    """Say whether a request may touch a resource: True, False, or None for no opinion.

    Called: in the loop, per request and resource (`operation` "read", "write", "create", "delete", "alter", "describe",
    "cluster_action", "describe_configs", "alter_configs" or "idempotent_write"; `resource_type` "topic", "group",
    "transactional_id" or "cluster"; `principal` such as "User:alice", "User:ANONYMOUS" without authentication). Cost:
    one call per request and resource, one more where audit records the answer, none where no plugin has it; keep it
    under a microsecond, or have the broker keep verdicts (`ctx.cache_verdicts`). Error: raising denies, and is counted.
    Where access rules decide, the first verdict is final, and without any the rules are asked. Elsewhere one False
    denies, whatever others say, and without any opinion the request is allowed.
    """


@hookspec
def halfmoon_kafka_apis(ctx: PluginContext) -> Sequence[KafkaApi]:
    """Answer requests of a Kafka API of the plugin's own.

    Called: in the loop, per request. Cost: none for other requests; code that blocks the loop blocks all clients.
    Error: the broker logs and counts the error and closes that connection. A key that the broker has itself stops the
    start.
    """


@hookspec
def halfmoon_topic_changed(ctx: PluginContext, topic: str, change: TopicChange) -> None:
    """Learn that a topic exists, or was created, deleted, grown or configured.

    Called: in the loop, when the change is durable; at the start, after `halfmoon_started`, once for each existing
    topic. Cost: per change. Error: logged and counted; the change remains.
    """


@hookspec
def halfmoon_started(ctx: PluginContext) -> None:
    """Learn that the broker will accept requests next; `ctx.append`, `ctx.read` and `ctx.state_dir` work from here on.

    Called: in the loop, once, before the listeners open. Cost: start-up time. Error: the broker does not start.
    """


@hookspec
def halfmoon_stopping(ctx: PluginContext) -> None:
    """Learn that the broker stops; the last chance to append.

    Called: in the loop, once, after the listeners closed, in the reverse order of the start. Cost: delays the stop.
    Error: logged and counted; the stop continues.
    """
