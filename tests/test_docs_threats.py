"""docs/threats.md: its settings exist, its figures are the code's, and what it calls fixed has a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from halfmoon.adapters.kafka.login import FAILED_MS, LONGEST_REQUEST
from halfmoon.adapters.rocketmq.signatures import REFUSED_MS
from halfmoon.adapters.tcp import newcomers
from halfmoon.config.settings import LimitSettings
from halfmoon.server.http import LINE_EVERY_S, HttpLimits
from halfmoon.services.credentials.tokens import MOST_OF_OWNER

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
SETTINGS = set(re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs/configuration.md").read_text(encoding="utf-8"), re.M))
LIMITS = LimitSettings()

FIGURES = {
    f"{LIMITS.max_unauthenticated} connections at a time for each protocol, ",
    f" for each protocol, {LIMITS.authentication_timeout_ms // 1000} s each",
    f"requests of {LONGEST_REQUEST >> 10} KiB, and {newcomers.LARGE_BYTES >> 20} MiB of larger ones from all strangers",
    f"{FAILED_MS} to {2 * FAILED_MS} ms late",
    f"at most {MOST_OF_OWNER:,};",
    f"now {newcomers.LARGE_BYTES >> 20} MiB together",
    f"now {MOST_OF_OWNER:,} for each user",
    f"{HttpLimits().connections} silent connections at the HTTP port",
}  # fmt: skip

FIXED = {
    "RocketMQ frames of 16 MiB": "tests/hostile/test_rocketmq.py::test_large_frames_of_strangers",
    "delegation tokens without end": "tests/services/credentials/test_tokens.py::test_nobody_has_more_than_a_thousand",
    "a pull of RocketMQ, or a share fetch": "tests/security/test_revoked.py::test_a_fetch_that_waits",
    "a certificate whose name becomes": (
        "tests/security/test_tls_listener.py::test_a_certificate_lets_nobody_in_who_is_disabled_or_the_broker_itself"
    ),
    "messages of others' topics": (
        "tests/adapters/rocketmq/test_rocketmq_access.py::test_whether_a_message_is_there_is_not_told"
    ),
    "whether a topic exists, by RocketMQ's": (
        "tests/adapters/rocketmq/test_rocketmq_access.py::test_whether_a_topic_is_there_is_not_told"
    ),
    "JSON 100,000 levels deep": "tests/security/test_secrecy.py::test_depths_are_no_errors_of_the_broker",
    "a broker killed while rules": "tests/hostile/test_rules.py::test_a_change_of_rules_is_whole_or_was_not",
    "all queue locks": "tests/adapters/rocketmq/test_groups.py::test_a_queue_is_one_lock",
    "the administrator's socket": "tests/security/test_admin_socket.py::test_a_folder_in_which_others_may_write",
    "half messages, those that were": "tests/security/test_own_ways.py::test_a_half_message_is_found_by_who_may_end_it",
    "32 silent connections": "tests/server/test_http.py::test_who_says_nothing_gives_way",
    "log lines by malformed": "tests/server/test_http.py::test_malformed_requests_do_not_fill_the_log",
}
"""How the row of the table begins → its test."""


def test_its_settings_exist() -> None:
    table = PAGE.partition("## Settings that matter")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`([\w.]+)`", row)}
    assert len(named) > 10
    assert sorted(named - SETTINGS) == []


@pytest.mark.parametrize("figure", sorted(FIGURES))
def test_its_figures(figure: str) -> None:
    assert figure in PAGE


def test_refusals_of_both_protocols_are_equally_late() -> None:
    assert (FAILED_MS, LONGEST_REQUEST, LINE_EVERY_S) == (REFUSED_MS, newcomers.SMALL_BYTES, 1.0)


def test_what_is_fixed_has_a_test() -> None:
    rows = [row for row in PAGE.splitlines() if "**fixed**" in row and row.startswith("|")]
    assert sorted(
        beginning for beginning in FIXED if sum(row[2:].startswith(beginning) for row in rows) == 1
    ) == sorted(FIXED)
    assert len(rows) == len(FIXED)
    for test in FIXED.values():
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test
