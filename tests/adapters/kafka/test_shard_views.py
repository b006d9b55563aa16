"""Views of topics that are spread over shards of two processes."""

from __future__ import annotations

from typing import Any

import pytest
from shard_rig import SHARDS
from two_processes import TwoProcesses

from halfmoon.schema.control import FROM_END
from tests.core.relay_bench import send
from tests.kafka_messages import made

CREATE, DESCRIBE, TOPIC = 19, 32, 2


@pytest.fixture
def two() -> TwoProcesses:
    two = TwoProcesses()
    source = two.topic("source", SHARDS)
    for index in range(SHARDS):
        for _ in range(index + 1):
            put(two, source, index)
    return two


def put(two: TwoProcesses, topic: Any, index: int) -> None:
    node = two.nodes[two.shard_of(topic, index)]
    send(node, topic.name, (b"v", {"TAGS": "a"}), index=index)
    two.turn()


def create(two: TwoProcesses, name: str, **more: str) -> None:
    """By a request to the first process."""
    configs = {"halfmoon.view.source": "source", "halfmoon.view.tag": "a", **more}
    two.rigs[0].administer = lambda work, told: told(two.change(work))  # type: ignore[method-assign]
    asked = [
        made(CREATE, "CreatableTopic.CreatableTopicConfig", name=key, value=value) for key, value in configs.items()
    ]
    topic = made(CREATE, "CreatableTopic", name=name, num_partitions=-1, replication_factor=-1, configs=asked)
    answer = two.client(0).ask(CREATE, 5, topics=[topic], timeout_ms=1_000, validate_only=False)
    assert [(each.error_code, each.num_partitions) for each in answer.topics] == [(0, SHARDS)]
    two.turn()
    two.relay()
    two.turn()


def ends(two: TwoProcesses, name: str) -> list[int]:
    topic = two.rigs[0].front.catalog.by_name[name]
    return [two.partition(topic, index).high_watermark for index in range(SHARDS)]


def test_each_partition_is_filled_where_its_source_lies(two: TwoProcesses) -> None:
    create(two, "view")
    catalog = two.rigs[1].front.catalog
    shards = [two.shard_of(catalog.by_name["source"], index) for index in range(SHARDS)]
    assert sorted(shards) == list(range(SHARDS))
    assert [two.shard_of(catalog.by_name["view"], index) for index in range(SHARDS)] == shards
    assert ends(two, "view") == [1, 2, 3, 4]


def test_from_latest_begins_at_the_end_of_each_partition_wherever_that_is(two: TwoProcesses) -> None:
    create(two, "view", **{"halfmoon.view.from": "latest"})
    assert ends(two, "view") == [0] * SHARDS
    shared = two.rigs[0].shared.catalog.by_name["view"].view
    assert shared is not None
    assert FROM_END in shared.starts, "the other shards find out"
    source = two.rigs[0].front.catalog.by_name["source"]
    for index in range(SHARDS):
        put(two, source, index)
    two.relay()
    two.turn()
    assert ends(two, "view") == [1] * SHARDS
    for shard, node in two.nodes.items():
        known = node.kernel.catalog.by_name["view"].view
        assert known is not None
        (own,) = [index for index in range(SHARDS) if two.shard_of(source, index) == shard]
        assert known.starts[own] == own + 1


@pytest.mark.parametrize("process", [0, 1])
def test_how_far_it_has_come_is_asked_of_all_shards(two: TwoProcesses, process: int) -> None:
    create(two, "view")
    assert position(two, process) == "1:1,2:2,3:3,4:4"
    two.questions.unreachable = {shard for shard in range(SHARDS) if two.at(shard) != process}
    found = position(two, process).split(",")
    assert sorted(found)[:2] == ["", ""], "nobody knows of the others' now"
    assert len([each for each in found if each]) == 2


def position(two: TwoProcesses, process: int) -> str:
    resource = made(
        DESCRIBE, "DescribeConfigsResource", resource_type=TOPIC, resource_name="view", configuration_keys=None
    )
    client = two.client(process)
    client.feed(client.encode(DESCRIBE, 4, resources=[resource], include_synonyms=False, include_documentation=False))
    two.turn()
    (answer,) = client.answers()
    (result,) = answer.results
    assert result.error_code == 0
    return str({each.name: each.value for each in result.configs}["halfmoon.view.position"])
