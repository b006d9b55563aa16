"""The hooks: every place where a plugin can join in, and the only ones the built-in plugins use.

Beside each stands when it is called, what it costs, and what an error does. "Called" means the objects it gives; the
hook itself is called once, when the broker starts, in the order of broker.yaml's plugins (built-in ones first; pluggy's
`tryfirst` and `trylast` move an implementation). The exceptions are the events at the end.

An implementation may leave out arguments it does not use, as pluggy allows, and may be no wrapper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pluggy

from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.types import (
    Command,
    ConfigSection,
    Dispatcher,
    FilterCompiler,
    HoldPolicy,
    Observer,
    PutInterceptor,
    Relay,
    Service,
    TopicChange,
)
from halfmoon.services.groups.allocation import AnyAllocator

PROJECT = "halfmoon"
hookspec = pluggy.HookspecMarker(PROJECT)

# A specification has a docstring for a body.
# mypy: disable-error-code="empty-body"


@hookspec
def halfmoon_config() -> ConfigSection:
    """The types of the plugin's settings.

    Called: before every other hook of the plugin. Cost: none later. Error: the broker does not start.
    """


@hookspec
def halfmoon_commitlog(ctx: PluginContext) -> Sequence[PutInterceptor]:
    """Change, divert or refuse batches before they are stored.

    Called: in the loop, for each produced batch in whose bytes a declared header name is found. Cost: a byte search
    per batch and name (30 GB/s; names that begin alike count once; compressed batches are decompressed first) for
    topics with feature headers, plus what `before_put` takes. Error: that batch is refused and nothing of it stored; a
    BrokerError gives the fault, anything else is UNKNOWN_SERVER_ERROR and logged.
    """


@hookspec
def halfmoon_dispatch(ctx: PluginContext) -> Sequence[Dispatcher]:
    """Follow the log and derive something from it.

    Called: in the loop, behind each fdatasync, with every batch that has become durable, produced or relayed; a
    transactional one when its transaction has ended. `checkpoint` every 5 s and at the stop; `restore` at the start.
    Cost: 5 to 10 µs per batch and dispatcher, none where there is no dispatcher. Error: that dispatcher halts at its
    checkpoint until the next start, and health turns red; the others go on.
    """


@hookspec
def halfmoon_hold(ctx: PluginContext) -> Sequence[HoldPolicy]:
    """Decide which arrivals answer a waiting request.

    Called: in the loop, per parked request and per arrival it waits for. Cost: one call per held request and arrival,
    so keep it under a microsecond. Error: that request is answered empty, and counted.
    """


@hookspec
def halfmoon_relays(ctx: PluginContext) -> Sequence[Relay]:
    """Decide what becomes of messages that wait in an internal topic, where an interceptor has put them.

    Called: `begin` per message that begins to wait, and after a start per message that waits; `decide` per message that
    is due. Cost: one call each, none for other topics. Error: logged, and the message is asked about again after 10 s.
    """


@hookspec
def halfmoon_filters(ctx: PluginContext) -> Mapping[str, FilterCompiler]:
    """Offer filter languages: name → compile(expression).

    Called: `compile` per subscription (FilterSyntaxError refuses it), `match` per record in which its needle occurs.
    Cost: nothing for topics that nobody filters. Error: counts as no match, and is counted.
    """


@hookspec
def halfmoon_allocators(ctx: PluginContext) -> Mapping[str, AnyAllocator]:
    """Offer allocation strategies: name → pure function of (members, queues), see halfmoon.services.groups.allocation.

    Called: in the loop, per rebalance and topic, or once for all topics where the strategy asks for that. Cost: none
    between rebalances. Error: the last assignment is kept, health turns yellow; in a Kafka client
    (`halfmoon.kafka.assignor`) it is raised there.
    """


@hookspec
def halfmoon_services(ctx: PluginContext) -> Sequence[Service]:
    """Run something beside the broker, in its event loop.

    Called: `run()` once the broker takes requests; cancelled when it stops. Cost: its own; what blocks the loop blocks
    everybody. Error (returning counts as one): started again with backoff; red after repeated failures.
    """


@hookspec
def halfmoon_commands(ctx: PluginContext) -> Mapping[str, Command]:
    """Add commands to the `halfmoon` command line: name → a function as typer takes it.

    Called: when that command is given; there is no running broker in that process. Cost: none for the broker.
    Error: the command's own.
    """


@hookspec
def halfmoon_observers(ctx: PluginContext) -> Sequence[Observer]:
    """Count what happens.

    Called: in the loop, per batch produced, fetched or refused. Cost: one call per batch and observer. Error: logged
    once, and that observer is called no more.
    """


@hookspec
def halfmoon_authorize(
    principal: str | None, client_host: str, operation: str, resource_type: str, resource: str
) -> bool | None:
    """Say whether a request may touch a resource: True, False, or None for no opinion.

    Called: in the loop, per request and resource (`operation` such as "read", "write", "create"; `resource_type`
    "topic", "group" or "cluster"). Cost: one call per request and resource; keep it under a microsecond, cache what is
    dear. Error: raising denies. One False denies, whatever others say; without any opinion the request is allowed.
    """


@hookspec
def halfmoon_topic_changed(ctx: PluginContext, topic: str, change: TopicChange) -> None:
    """Hear that a topic was created, deleted, grown or configured.

    Called: in the loop, when the change is durable. Cost: per change. Error: logged; the change stands.
    """


@hookspec
def halfmoon_started(ctx: PluginContext) -> None:
    """Hear that the broker is about to take requests; `ctx.append`, `ctx.read` and `ctx.state_dir` work from here on.

    Called: once, before the listeners open. Cost: start-up time. Error: the broker does not start.
    """


@hookspec
def halfmoon_stopping(ctx: PluginContext) -> None:
    """Hear that the broker stops; the last chance to append.

    Called: once, after the listeners closed, in the reverse order of starting. Cost: keeps the stop waiting.
    Error: logged; the stop goes on.
    """
