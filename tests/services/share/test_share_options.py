"""What share groups may configure."""

from __future__ import annotations

import pytest

from halfmoon.config.sections import SettingError
from halfmoon.config.settings import load_settings
from halfmoon.config.share_settings import EARLIEST_MS, LATEST_MS, ShareSettings, reset_ms
from halfmoon.services.configs.group_configs import GROUP_CONFIGS
from halfmoon.services.share.options import resolve
from halfmoon.services.share.share_partition import Terms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("latest", LATEST_MS), ("earliest", EARLIEST_MS), ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1D", 86_400_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500), ("by_duration:PT0S", 0), ("by_duration:PT0.25S", 250), ("none", None),
        ("by_duration:", None), ("by_duration:P", None), ("by_duration:PT", None), ("by_duration:1h", None),
    ],
)  # fmt: skip
def test_where_a_group_begins(text: str, ms: int | None) -> None:
    assert reset_ms(text) == ms


def test_the_defaults_are_kafkas() -> None:
    options = resolve("g", ShareSettings(), {})
    assert options.terms == Terms(30_000, 5, 2_000, True, True)
    assert options[1:] == (45_000, 5_000, "latest", False, "dlq.g", True)


def test_a_group_may_say_otherwise() -> None:
    options = resolve(
        "g", ShareSettings(),
        {
            "share.record.lock.duration.ms": "15000", "share.delivery.count.limit": "2",
            "share.partition.max.record.locks": "300", "share.renew.acknowledge.enable": "false",
            "share.session.timeout.ms": " 50000 ", "share.heartbeat.interval.ms": "1000",
            "share.auto.offset.reset": "by_duration:PT1H", "share.isolation.level": "read_committed",
            "errors.deadletterqueue.topic.name": "dlq.mine", "errors.deadletterqueue.copy.record.enable": "false",
        },
    )  # fmt: skip
    assert options.terms == Terms(15_000, 2, 300, True, False)
    assert options[1:] == (50_000, 1_000, "by_duration:PT1H", True, "dlq.mine", False)


@pytest.mark.parametrize("value", ["7", "+7", "007", "0000000000007"])
def test_numbers_are_read_as_they_were_taken(value: str) -> None:
    name = "share.delivery.count.limit"
    assert GROUP_CONFIGS[name].check(value) == 7
    assert resolve("g", ShareSettings(), {name: value}).terms[1] == 7


def test_what_is_not_valid_counts_as_not_given() -> None:
    given = {
        "share.record.lock.duration.ms": "soon", "share.delivery.count.limit": "0", "share.auto.offset.reset": "middle",
        "share.renew.acknowledge.enable": "perhaps", "errors.deadletterqueue.topic.name": "orders",
    }  # fmt: skip
    assert resolve("g", ShareSettings(), given) == resolve("g", ShareSettings(), {})


def test_no_letters() -> None:
    assert not resolve("g", ShareSettings(dead_letters=False), {}).terms.dead_letters
    assert not resolve("g", ShareSettings(), {"errors.deadletterqueue.topic.name": ""}).terms.dead_letters
    options = resolve("g", ShareSettings(dead_letters=False), {"errors.deadletterqueue.topic.name": "dlq.x"})
    assert options.terms.dead_letters


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("auto_offset_reset", "by_duration:x", "expected latest, earliest, or by_duration:"),
        ("heartbeat_interval", "45s", "expected less than session_timeout"),
        ("record_lock_duration", "10ms", "at least 1s"),
        ("delivery_count_limit", 1, "2"),
    ],
)
def test_settings_that_make_no_sense(name: str, value: object, problem: str) -> None:
    with pytest.raises(SettingError, match=rf"\$\.groups\.share\.{name}.*{problem}"):
        load_settings({"groups": {"share": {name: value}}}, {}, {})
