"""Retry policies: what the layers say together, the delays that follow, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from halfmoon.config.sections import SettingError, decode_section, written
from halfmoon.plugins.store.retry import configs
from halfmoon.plugins.store.retry.policies import Policies, RetrySettings, read_policy
from halfmoon.plugins.store.retry.policy import MAX_DELAY_MS, RetryPolicy, Rules, resolve


def settings(**given: Any) -> RetrySettings:
    return decode_section(RetrySettings, given, "$.plugins.retry")


def delays(rules: Rules, count: int, draw: float = 0.0) -> list[int | None]:
    return [rules.delay_after(attempts, draw) for attempts in range(count)]


# ------------------------------------------------------------------------------------------------------------ the delay


def test_steps_and_then_the_last_of_them() -> None:
    rules = resolve("g", [RetryPolicy(steps=[10, 60, 300], max_attempts=5)], 16)
    assert delays(rules, 5) == [10, 60, 300, 300, 300]
    assert rules.max_attempts == 5


def test_as_many_redeliveries_as_steps() -> None:
    assert resolve("g", [RetryPolicy(steps=[10, 60, 300])], 16).max_attempts == 3
    assert resolve("g", [RetryPolicy(delay_ms=10)], 16).max_attempts == 16


def test_an_exponential_delay_up_to_its_maximum() -> None:
    rules = resolve("g", [RetryPolicy(delay_ms=1_000, factor=3.0, max_delay_ms=20_000)], 16)
    assert delays(rules, 5) == [1_000, 3_000, 9_000, 20_000, 20_000]
    doubled = resolve("g", [RetryPolicy(delay_ms=1_000)], 16)
    assert delays(doubled, 3) == [1_000, 2_000, 4_000]
    assert doubled.delay_after(999, 0.0) == MAX_DELAY_MS
    assert resolve("g", [RetryPolicy(delay_ms=1, factor=100.0)], 16).delay_after(999, 0.0) == MAX_DELAY_MS


def test_jitter_goes_both_ways_and_not_beyond_the_maximum() -> None:
    rules = resolve("g", [RetryPolicy(delay_ms=1_000, jitter=0.2, max_delay_ms=4_000)], 16)
    assert [rules.delay_after(0, draw) for draw in (0.0, 0.5, 0.75)] == [800, 1_000, 1_100]
    assert [rules.delay_after(2, draw) for draw in (0.0, 0.999)] == [3_200, 4_000]
    assert resolve("g", [RetryPolicy(steps=[1], jitter=1.0)], 16).delay_after(0, 0.0) == 1


def test_without_steps_and_delay_it_goes_by_levels() -> None:
    assert delays(resolve("g", [RetryPolicy(jitter=0.5, max_attempts=3)], 16), 1) == [None]


# ----------------------------------------------------------------------------------------------------------- the layers


def test_each_field_is_of_the_first_layer_that_states_it() -> None:
    message = RetryPolicy(max_attempts=1)
    group = RetryPolicy(delay_ms=7, dead_letter_topic="dlq.x", not_retryable=[])
    file = RetryPolicy(
        steps=[1, 2], factor=5.0, max_attempts=9, dead_letter_topic="dlq.y", dead_letter_retention_ms=3,
        not_retryable=["A"],
    )  # fmt: skip
    held = resolve("g", [message, group, file], 16)
    assert held == Rules(
        max_attempts=1, dead_letter_topic="dlq.x", delay_ms=7, factor=5.0, dead_letter_retention_ms=3, not_retryable=()
    )
    assert resolve("g", [group, file], 16).max_attempts == 9
    assert resolve("a b", [], 4) == Rules(max_attempts=4, dead_letter_topic="dlq.a_x20_b")


def test_a_layer_can_go_back_to_levels_and_to_the_groups_own_topic() -> None:
    file = RetryPolicy(steps=[1, 2], dead_letter_topic="dlq.y")
    held = resolve("g", [RetryPolicy(steps=[], dead_letter_topic=""), file], 16)
    assert (held.delay_after(0, 0.0), held.max_attempts, held.dead_letter_topic) == (None, 16, "dlq.g")


def test_the_groups_own_policy_counts_before_patterns_and_these_in_order() -> None:
    policies = Policies(
        settings(
            policies={"*ing": {"max_attempts": 1}, "b*": {"max_attempts": 2}, "billing": {"jitter": 1}},
            max_reconsume_times=5,
        )
    )
    found = {group: policies.of(group).max_attempts for group in ("billing", "mailing", "books", "c")}
    assert found == {"billing": 5, "mailing": 1, "books": 2, "c": 5}


def test_a_group_that_states_something_else_has_other_rules_at_once() -> None:
    said: dict[str, Mapping[str, str]] = {}
    policies = Policies(settings(policies={"g": {"steps": ["1s"]}}), lambda group: said.get(group, {}))
    assert policies.of("g").steps == (1_000,)
    kept = policies.of("g")
    assert policies.of("g") is kept
    said["g"] = {"halfmoon.retry.steps": "2s, 1m", "share.isolation.level": "read_committed"}
    assert policies.of("g").steps == (2_000, 60_000)
    assert policies.of_message("g", b'{"max_attempts": 7}') == resolve(
        "g", [RetryPolicy(steps=[2_000, 60_000], max_attempts=7)], 16
    )
    said["g"] = {}
    assert policies.of_message("g", b'{"max_attempts": 7}').steps == (1_000,)


def test_only_so_many_rules_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.plugins.store.retry.policies.KEPT", 2)
    policies = Policies(settings())
    for number in range(5):
        policies.of(f"g{number}")
        policies.of_message("g", b'{"max_attempts": %d}' % number)
    assert len(policies._rules) <= 2
    assert len(policies._of_messages) <= 2


# ---------------------------------------------------------------------------------------------- what is not retried


@pytest.mark.parametrize(
    ("pattern", "classes", "refused"),
    [
        ("ValueError", "builtins.ValueError", True),
        ("ValueError", "ValueError", True),
        ("ValueError", "acme.MyValueError", False),
        ("builtins.ValueError", "ValueError", False),
        ("acme.*", "acme.orders.BadOrder", True),
        ("*Error", "acme.orders.BadError", True),
        ("valueerror", "ValueError", False),
        ("ValueError", "acme.BadOrder,builtins.ValueError", True),
    ],
)
def test_error_classes(pattern: str, classes: str, refused: bool) -> None:
    rules = resolve("g", [RetryPolicy(not_retryable=["Other", pattern])], 16)
    assert rules.refuses(classes.split(",")) == (pattern if refused else None)


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"steps": ["10"]}, "steps[0]: got '10', expected a duration"),
        ({"steps": ["0s"]}, "steps[0]: got '0s', expected a duration such as 100ms, 30s or 7d, at least 1ms"),
        ({"steps": ["1s"], "delay": "1s"}, "steps: there is a delay too; state one of them"),
        ({"steps": ["1s"] * 101}, "steps: 101 steps; there may be 100"),
        ({"factor": 0.5}, "factor: got 0.5, expected"),
        ({"jitter": 1.5}, "jitter: got 1.5, expected"),
        ({"max_attempts": -1}, "max_attempts: got -1, expected"),
        ({"dead_letter_topic": "letters"}, "'letters': expected the name of a topic that begins with dlq."),
        ({"dead_letter_topic": "dlq."}, "expected the name of a topic that begins with dlq."),
        ({"dead_letter_topic": "dlq.a b"}, "dead_letter_topic: got 'dlq.a b'"),
        ({"not_retryable": [""]}, "not_retryable: an error class is empty"),
        ({"not_retryable": ["x"] * 101}, "not_retryable: 101 error classes; there may be 100"),
        ({"step": ["1s"]}, "step: no such setting; did you mean steps?"),
    ],
)
def test_a_policy_that_cannot_be_taken(policy: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        settings(policies={"g": policy})
    assert said in str(caught.value)
    assert str(caught.value).startswith("$.plugins.retry.policies.g.")


def test_a_policy_for_no_group() -> None:
    with pytest.raises(SettingError, match="the name of a group is empty"):
        settings(policies={"": {}})


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"steps=1s", "RETRY_POLICY: it is no JSON"),
        (b"\xff", "RETRY_POLICY: it is no JSON"),
        (b"[" * 4_000, "RETRY_POLICY: it is no JSON"),
        (b"[]", "RETRY_POLICY: got []"),
        (b'{"steps": "1s"}', "RETRY_POLICY.steps: got '1s', expected"),
        (b'{"jitter": NaN}', "RETRY_POLICY: it is no JSON"),
        (b" " * 4_097, "RETRY_POLICY: it has 4097 bytes; there may be 4096"),
    ],
)
def test_a_header_that_cannot_be_read(header: bytes, said: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_policy(header)
    assert str(caught.value).startswith(said)


# ------------------------------------------------------------------------------------------ configurations of groups

ROWS = {row.name: row for row in configs.group_configs(Policies(settings()).of_unstated)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", "10s,,1m"),
        ("steps", "10"),
        ("steps", "0s"),
        ("steps", ",".join(["1s"] * 101)),
        ("delay.ms", "0"),
        ("delay.ms", "x"),
        ("delay.ms", "9" * 25),
        ("factor", "0.9"),
        ("factor", "nan"),
        ("factor", "101"),
        ("jitter", "-0.1"),
        ("jitter", "much"),
        ("max.attempts", "-1"),
        ("max.attempts", "1001"),
        ("max.delay.ms", "0"),
        ("dead.letter.topic", "letters"),
        ("dead.letter.retention.ms", "0"),
        ("not.retryable", "A,,B"),
    ],
)
def test_a_configuration_that_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ROWS[f"halfmoon.retry.{name}"].check(value)


def test_a_group_states_a_policy_by_configurations() -> None:
    said = {
        "halfmoon.retry.steps": " 10s , 1m",
        "halfmoon.retry.delay.ms": "5",
        "halfmoon.retry.factor": "1.5",
        "halfmoon.retry.jitter": "0.2",
        "halfmoon.retry.max.delay.ms": "-1",
        "halfmoon.retry.max.attempts": "3",
        "halfmoon.retry.dead.letter.topic": "dlq.x",
        "halfmoon.retry.dead.letter.retention.ms": "86400000",
        "halfmoon.retry.not.retryable": "A,b.*",
        "consumer.session.timeout.ms": "6000",
    }
    assert configs.stated(said) == RetryPolicy(
        steps=[10_000, 60_000], factor=1.5, jitter=0.2, max_attempts=3, dead_letter_topic="dlq.x",
        dead_letter_retention_ms=86_400_000, not_retryable=["A", "b.*"],
    )  # fmt: skip
    for retention, held in (("-1", -1), ("-2", None)):
        said["halfmoon.retry.dead.letter.retention.ms"] = retention
        assert configs.stated(said).dead_letter_retention_ms == held
    said["halfmoon.retry.steps"] = ""
    assert (configs.stated(said).steps, configs.stated(said).delay_ms) == ([], 5)


def test_what_is_shown_of_a_group_that_states_nothing() -> None:
    shown = {name.removeprefix("halfmoon.retry."): row.default(None, "g") for name, row in ROWS.items()}  # type: ignore[arg-type]
    assert shown == {
        "dead.letter.retention.ms": "-2", "dead.letter.topic": "dlq.g", "delay.ms": "-1", "factor": "2", "jitter": "0",
        "max.attempts": "16", "max.delay.ms": "-1", "not.retryable": "", "steps": "",
    }  # fmt: skip
    assert list(ROWS) == sorted(ROWS)
    assert all(row.built_in is not None and row.built_in("g") == row.default(None, "g") for row in ROWS.values())  # type: ignore[arg-type]
    for name, row in ROWS.items():
        row.check(row.default(None, "g"))  # type: ignore[arg-type]
        assert name in configs._FIELDS
    policy = {"steps": ["10s", "90s"], "max_delay": "1m", "not_retryable": ["A", "B"], "jitter": 0.25}
    of_file = configs.group_configs(Policies(settings(policies={"g": policy})).of_unstated)
    found = {row.name.removeprefix("halfmoon.retry."): row.default(None, "g") for row in of_file}  # type: ignore[arg-type]
    assert found == shown | {
        "steps": "10s,90s", "max.delay.ms": "60000", "not.retryable": "A,B", "jitter": "0.25", "max.attempts": "2"
    }  # fmt: skip


def test_a_policy_is_written_as_it_is_read() -> None:
    given = {"max_reconsume_times": 3, "policies": {"b*": {"steps": ["10s", "90s"], "max_delay": "1m", "jitter": 0.5}}}
    tree = written(settings(**given))
    assert tree["policies"]["b*"]["steps"] == ["10s", "90s"]
    assert tree["policies"]["b*"]["max_delay"] == "1m"
    assert decode_section(RetrySettings, tree, "$") == settings(**given)


def test_the_policies_of_the_docs() -> None:
    text = (Path(__file__).parents[4] / "docs/retry.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n# broker.yaml\n(.*?)```", text, re.DOTALL)
    policies = Policies(settings(**yaml.safe_load(block)["plugins"]["retry"]))
    billing, mail = policies.of("billing"), policies.of("mail-1")
    assert (delays(billing, 3), billing.max_attempts) == ([10_000, 60_000, 300_000], 3)
    assert billing.refuses(["acme.orders.BadOrder"])
    assert billing.refuses(["builtins.ValueError"])
    assert delays(mail, 3, 0.5) == [1_000, 2_000, 4_000]
    assert (mail.max_attempts, mail.dead_letter_topic) == (8, "dlq.mail")
    rows = re.findall(r"^\| (`.*?) \| (`halfmoon.*?) \|", text, re.MULTILINE)
    stated = {name for _, names in rows for name in re.findall(r"`([^`]+)`", names)}
    fields = {name for names, _ in rows for name in re.findall(r"`([^`]+)`", names)}
    assert stated == set(ROWS)
    assert fields == {field.encode_name for field in msgspec.structs.fields(RetryPolicy)}
