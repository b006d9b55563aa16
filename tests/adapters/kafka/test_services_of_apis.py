"""An API is offered only where the service is on that its handler asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kafka_rig import Rig

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.registry import Api, OnDemand, offered
from halfmoon.hooks.schedules import Schedules
from halfmoon.services.common.services import Services
from halfmoon.services.security import SecurityAnswers

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
INIT_PRODUCER_ID = 22
ALWAYS = {
    PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, INIT_PRODUCER_ID,
}  # fmt: skip

ROOT = Path(__file__).parents[3]

OF_A_RUNNING_BROKER = (
    SecurityAnswers("decide", "reload"),  # type: ignore[arg-type]
    Schedules("ask", "when_ready"),  # type: ignore[arg-type]
)
"""The app adds the first (server/app.py): it knows access rules and certificates; the second is a plugin's."""

ASKED_BESIDE = {
    (74, "ClientMetrics"): "part of the configurations",
    (74, "GroupConfigs"): "part of the configurations",
}
"""Services that a handler asks for beside the one that it names, and why that is well."""


def services_in(api: Api) -> set[str]:
    """Names of the types that the module of the handler asks for."""
    module = api.handler.module if isinstance(api.handler, OnDemand) else api.handler.__module__
    source = (ROOT / module.replace(".", "/")).with_suffix(".py")
    return set(re.findall(r"services\.get\((\w+)\)", source.read_text()))


@pytest.mark.parametrize("api", [pytest.param(each, id=each.name) for each in registered().values()])
def test_what_a_handler_asks_for_is_what_its_api_names(api: Api) -> None:
    named = {kind.__name__ for kind in api.services}
    assert {name for name in services_in(api) - named if (api.key, name) not in ASKED_BESIDE} == set()


def test_each_exception_is_one() -> None:
    for key, name in ASKED_BESIDE:
        assert name in services_in(registered()[key])


def test_without_services_a_log_remains() -> None:
    left = set(offered(registered(), Services()))
    assert left >= ALWAYS
    assert {registered()[key].services for key in left} == {()}


@pytest.mark.parametrize("kind", sorted({kind for each in registered().values() for kind in each.services}, key=str))
def test_without_a_service_its_apis_are_not_offered(kind: type) -> None:
    services = Services((*Rig().broker.services, *OF_A_RUNNING_BROKER))
    assert services.find(kind) is not None
    others = Services(each for each in services if type(each) is not kind)
    gone = set(registered()) - set(offered(registered(), others))
    assert gone == {key for key, each in registered().items() if kind in each.services}
    assert gone
