"""CreateTopics (19): new topics with partitions and configurations.

Each topic succeeds or fails for itself; those created are answered together, once the log has them. Rules and order
of the checks: ControllerApis.createTopics and ReplicationControlManager.createTopic. Where a single node is all there
is, the only replication factor is 1 (or -1, the default) and the only manual assignment is to this node. In a cluster
any is accepted and shown: how often a message is kept is the matter of what is behind the nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from halfmoon.adapters.kafka.assignments import check_assignments, same_length
from halfmoon.adapters.kafka.config_entries import topic_entries
from halfmoon.adapters.kafka.duplicates import duplicates_in_slices
from halfmoon.adapters.kafka.durable import each_of, refuse, tells_state
from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.mutations import Mutations
from halfmoon.adapters.kafka.protocol import CreateTopicsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.tcp.access import CLUSTER
from halfmoon.core.topic_names import check_topic_name
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.durability import REPLICATION_FACTOR

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.core import Core

_Result = CreateTopicsResponse.CreatableTopicResult


STRICT_SINCE = 6
"""From this version on, clients know what it means that their quota of changes is used up."""


@tells_state(each_of("topics"))
def handle(ctx: Context, request: Any) -> Slices[object]:
    twice = yield from duplicates_in_slices(topic.name for topic in request.topics)
    validate_only = bool(request.validate_only)
    mutations = Mutations(ctx, STRICT_SINCE)
    results = []
    # Topics that are created together mostly look alike: what is told of their configurations is made once.
    told: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for topic in request.topics:
        yield
        if topic.name in twice:
            continue
        # UUID(int=0), which reads back as None, is also what a topic gets that was only validated.
        result = _Result(name=topic.name, topic_id=UUID(int=0), error_code=0, error_message=None, configs=[])
        results.append(result)
        try:
            ctx.check_either(("create", "cluster", CLUSTER), ("create", "topic", topic.name))
            partitions, configs = _wanted(ctx, topic)
            mutations.take(ctx.core.settings.topics.partitions if partitions == -1 else partitions)
            made, _ = ctx.core.administration.create_topic(topic.name, partitions, configs, validate_only=validate_only)
        except BrokerError as error:
            refuse(result, error)
            continue
        if ctx.allows("describe_configs", "topic", topic.name):
            result.num_partitions = len(made.partitions)
            result.replication_factor = int(configs.get(REPLICATION_FACTOR, 1))
            alike = tuple(configs.items())
            if alike not in told:
                told[alike] = _configs(ctx, configs)
            result.configs = told[alike]
        else:
            result.topic_config_error_code = code(Fault.TOPIC_AUTHORIZATION_FAILED)
        if not validate_only:
            result.topic_id = UUID(bytes=made.id)
    for name in twice:
        yield
        result = _Result(name=name, topic_id=UUID(int=0), configs=[])
        refuse(result, BrokerError(Fault.INVALID_REQUEST, "duplicate topic name"))
        results.append(result)
    return CreateTopicsResponse(throttle_time_ms=mutations.wait_ms, topics=results)


def _wanted(ctx: Context, topic: Any) -> tuple[int, dict[str, str]]:
    """The number of partitions (-1 = the default) and the overrides asked for. Raises BrokerError."""
    check_topic_name(topic.name)
    if ctx.core.catalog.topic(topic.name) is not None:
        raise BrokerError(Fault.TOPIC_ALREADY_EXISTS, f"topic '{topic.name}' already exists")
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise BrokerError(Fault.INVALID_CONFIG, f"null value not supported for topic configs: {','.join(nulls)}")
    overrides = {config.name: config.value for config in topic.configs}
    if ctx.rights is not None:
        for source in ctx.core.administration.policies.shown_by(overrides):  # before it is said whether it exists
            ctx.check("read", "topic", source)
    ctx.core.topic_configs.validate(overrides)
    partitions, replicas = _partitions(topic, ctx.core)
    if replicas > 1:
        overrides[REPLICATION_FACTOR] = str(replicas)
    return partitions, overrides


def _partitions(topic: Any, core: Core) -> tuple[int, int]:
    """The number of partitions (-1 = the default), and the replication factor. Raises BrokerError."""
    any_replicas = core.owners.has_replicas
    if topic.assignments:
        if topic.replication_factor != -1 or topic.num_partitions != -1:
            raise BrokerError(
                Fault.INVALID_REQUEST,
                "with a manual partition assignment, replication factor and number of partitions must be -1",
            )
        indexes = [assignment.partition_index for assignment in topic.assignments]
        if sorted(indexes) != list(range(len(indexes))):
            raise BrokerError(
                Fault.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered 0, 1, 2, ... without a gap, each once"
            )
        assigned = [assignment.broker_ids for assignment in topic.assignments]
        if any_replicas:
            return len(indexes), same_length(assigned)
        check_assignments(assigned, core.node_id)
        return len(indexes), 1
    if any_replicas and (topic.replication_factor == 0 or topic.replication_factor < -1):
        raise BrokerError(Fault.INVALID_REPLICATION_FACTOR, "the replication factor must be larger than 0, or -1")
    if not any_replicas and topic.replication_factor not in (-1, 1):
        raise BrokerError(
            Fault.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor} is not possible: this is a single node, it must be 1 or -1",
        )
    return int(topic.num_partitions), max(1, int(topic.replication_factor))


def _configs(ctx: Context, overrides: dict[str, str]) -> list[Any]:
    return [
        _Result.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=False,
        )
        for entry in topic_entries(ctx, overrides)
    ]
