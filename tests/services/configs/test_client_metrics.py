"""Client metrics subscriptions: what may be said in one."""

from __future__ import annotations

import pytest

from halfmoon.errors import BrokerError, Fault
from halfmoon.services.configs.client_metrics import validate


@pytest.mark.parametrize(
    "match",
    [
        "",
        "client_id=a.*",
        " client_id = (a|b)+ , client_software_version=4\\.[0-9]+",
        "client_source_port=\\d+",
        # To both of these Python's own engine says other errors than its own.
        "client_id=a{99999999999999999999}",
        "client_id=" + "(" * 500 + ")" * 500,
    ],
)
def test_which_clients(match: str) -> None:
    validate({"match": match})


@pytest.mark.parametrize(
    "match",
    [
        "a.*",
        "client_id",
        "client_id=",
        "client_id=a=b",
        "client_id=a,,client_id=b",
        "user=a",
        "client_id=(",
        # Java and Python have these, RE2 does not, and patterns that clients send are RE2's here.
        "client_id=(?=a)b",
        "client_id=" + "a" * 1_015,
    ],
)
def test_no_clients_that_can_be_told(match: str) -> None:
    with pytest.raises(BrokerError) as caught:
        validate({"match": match})
    assert caught.value.fault is Fault.INVALID_CONFIG


@pytest.mark.parametrize("interval", ["99", "3600001", "x", "1s"])
def test_an_interval_that_is_none(interval: str) -> None:
    with pytest.raises(BrokerError, match=r"interval\.ms") as caught:
        validate({"interval.ms": interval})
    assert caught.value.fault is Fault.INVALID_REQUEST


def test_a_name_that_is_none() -> None:
    with pytest.raises(BrokerError, match=r"no\.such\.config"):
        validate({"no.such.config": "1"})
