"""ApiVersions: the table, in every version, and to clients from the future."""

from __future__ import annotations

import struct

import pytest

from halfmoon.adapters.kafka.api import api_18_api_versions, registered
from halfmoon.adapters.kafka.features import Feature
from halfmoon.adapters.kafka.registry import ApiTable
from tests.kafka_messages import read_answer

SOFTWARE = {"client_software_name": "rig", "client_software_version": "1.0"}

REQUEST_V3 = bytes.fromhex(
    "00000025"  # size 37
    "0012 0003 00000001"  # ApiVersions, version 3, correlation id 1
    "0007 72646b61666b61"  # client id 'rdkafka', never compact
    "00"  # no tagged fields in the header
    "0b 6c696272646b61666b61"  # software name 'librdkafka'
    "07 322e31362e31"  # software version '2.16.1'
    "00"  # no tagged fields
)
"""Written by hand from RequestHeader.json and ApiVersionsRequest.json, with librdkafka's default client id and name."""


def table(answer):
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


def offered():
    found = {key: (api.min_version, api.max_version) for key, api in registered().items() if not api.own}
    found[0] = (0, found[0][1])  # librdkafka looks for Produce 0, which Kafka lists without taking it
    return found


@pytest.mark.parametrize("version", range(5))
def test_every_version_lists_what_is_registered(rig, version):
    answer = rig.client().ask(18, version, **(SOFTWARE if version >= 3 else {}))
    assert answer.error_code == 0
    assert table(answer) == offered()


def test_a_newer_client_is_answered_in_version_0(rig):
    client = rig.client()
    client.feed(struct.pack(">ihhih", 30, 18, 77, 5, -1) + bytes(20))
    (frame,) = client.frames()
    assert frame[:6] == struct.pack(">ih", 5, 35)
    assert table(read_answer(18, 0, frame)) == offered()
    assert not client.transport.closed


@pytest.mark.parametrize("name", ["", "-a", "a b", "a-"])
def test_software_names_must_look_like_names(rig, name):
    answer = rig.client().ask(18, 3, **(SOFTWARE | {"client_software_name": name}))
    assert answer.error_code == 42


def test_version_3_written_by_hand_from_the_schema(rig):
    """Version 3 is flexible, but the client id is not compact and the answer's header is version 0 (KIP-511).

    The other tests' requests are encoded by the project's own definitions; these bytes do not depend on them.
    """
    client = rig.client()
    client.feed(REQUEST_V3)
    (frame,) = client.frames()
    assert frame[:5] == b"\x00\x00\x00\x01\x00", "the header has no tagged fields: the error code follows"
    assert table(read_answer(18, 3, frame)) == offered()


FEATURES = {"group.version": (0, 1), "share.version": (0, 1), "transaction.version": (0, 2)}
"""KIP-848, KIP-932, KIP-890: levels from and to."""


@pytest.mark.parametrize("version", [3, 4])
def test_features(rig, version):
    """Before version 4 no feature that may be 0 is said to be supported (KAFKA-17011)."""
    answer = rig.client().ask(18, version, **SOFTWARE)
    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    assert supported == (FEATURES if version >= 4 else {})
    assert answer.finalized_features_epoch == 0
    finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    assert finalized == {name: (level, level) for name, (_, level) in FEATURES.items()}


def test_the_tagged_fields_to_the_byte():
    """What follows the table and the throttle time, in version 4, with one feature."""
    table = ApiTable(registered())
    table.features = (Feature("group.version", 0, 1),)
    written = bytes.fromhex(
        "03"  # three tagged fields
        "00 14"  # tag 0, 20 bytes: supported features
        "02 0e 67726f75702e76657273696f6e"  # one: 'group.version'
        "0000 0001 00"  # from 0 to 1
        "01 08 0000000000000000"  # tag 1: epoch of those in force
        "02 14"  # tag 2, 20 bytes: features in force
        "02 0e 67726f75702e76657273696f6e 0001 0001 00"
    )
    assert api_18_api_versions.answer(table, 4, 0).endswith(written)
