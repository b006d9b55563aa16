"""by_config: the table in broker.yaml, and that it never gives a queue to two members."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.config.sections import SettingError, decode_section
from halfmoon.plugin import Queue
from halfmoon.plugins.allocate.by_config import ByConfigSettings, by_config
from tests.plugins.allocate.allocation_cases import MEMBERS, QUEUES, check_any_order, owners

ORDERS = [Queue("orders", "b", number) for number in range(4)]
PATTERNS = st.dictionaries(
    st.sampled_from(["*", "r1-*", "r[23]-*", "nobody"]),
    st.lists(st.sampled_from(["t/0", "t/*", "*/1*", "u/r1@broker-a/*", "*/plain/?"]), max_size=3),
)


def test_each_reads_what_the_table_says() -> None:
    table = {"a-*": ["orders/0", "orders/b/2"], "b-*": ["orders/*"]}
    assert by_config(["b-1", "a-7"], ORDERS, assign=table) == {
        "a-7": [ORDERS[0], ORDERS[2]],
        "b-1": [ORDERS[1], ORDERS[3]],
    }


def test_a_later_line_stands_by() -> None:
    table = {"a": ["orders/0"], "b": ["orders/*"]}
    assert by_config(["b"], ORDERS, assign=table) == {"b": ORDERS}
    assert by_config(["a"], ORDERS, assign=table) == {"a": ORDERS[:1]}


def test_of_several_members_the_first_has_it() -> None:
    assert by_config(["m2", "m1"], ORDERS, assign={"m*": ["*/*"]}) == {"m1": ORDERS, "m2": []}


def test_without_a_table_nobody_has_anything() -> None:
    assert by_config(["m"], ORDERS) == {"m": []}


@given(MEMBERS, QUEUES, PATTERNS)
def test_no_queue_has_two_owners_and_order_does_not_matter(
    members: list[str], queues: list[Queue], table: dict[str, list[str]]
) -> None:
    allocator = partial(by_config, assign=table)
    assignment = allocator(members, queues)
    assert set(assignment) == set(members)
    assert set(owners(assignment)) <= set(queues)
    check_any_order(allocator, members, queues)


@pytest.mark.parametrize("pattern", ["orders", "a/b/c/d", ""])
def test_a_pattern_that_names_no_queue_is_refused(pattern: str) -> None:
    with pytest.raises(SettingError, match=r"\$\.plugins\.by_config\.assign: got .* expected queues as TOPIC/ID"):
        decode_section(ByConfigSettings, {"assign": {"m": [pattern]}}, "$.plugins.by_config")
