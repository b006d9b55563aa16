"""What is named many times is answered once, where the answer is much larger than the name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from halfmoon.adapters.kafka.protocol import DescribeConfigsRequest, OffsetFetchRequest
from halfmoon.testing import Broker
from tests.fuzz.peer import Peer


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Broker() as broker:
        host, port = broker.bootstrap_servers.split(":")
        with Peer((host, int(port))) as peer:
            yield peer


def test_configurations(peer: Peer):
    resource = DescribeConfigsRequest.DescribeConfigsResource
    resources = [
        resource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((4, "1"), (4, "1"), (2, "no-such"), (4, "1"))
    ]
    asked = {"include_synonyms": False, "include_documentation": False}
    results = peer.ask(32, 4, resources=resources, **asked).results
    assert [(result.resource_type, result.resource_name) for result in results] == [(4, "1"), (2, "no-such")]
    assert len(results[0].configs) > 1


def test_groups(peer: Peer):
    groups = peer.ask(15, 5, groups=["a", "b", "a", "a"], include_authorized_operations=False).groups
    assert [group.group_id for group in groups] == ["a", "b"]


def test_offsets_of_groups(peer: Peer):
    wanted = OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [wanted(group_id=name, topics=None) for name in ("a", "b", "a")]
    assert [group.group_id for group in peer.ask(9, 8, groups=groups, require_stable=False).groups] == ["a", "b"]
