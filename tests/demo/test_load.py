"""halfmoon.demo.load without a broker: the arithmetic of going on (tests/spark/test_demo.py loads for real)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.demo.load import counts, covering

PLACES = [0, 1, 0, 2, 1, 0]


def test_counts_name_every_partition() -> None:
    assert counts([0, 0, 2], 4) == {0: 2, 1: 0, 2: 1, 3: 0}


@pytest.mark.parametrize(
    ("present", "needed"),
    [
        ({0: 0, 1: 0, 2: 0}, 0),
        ({0: 1, 1: 0, 2: 0}, 1),
        ({0: 1, 1: 1, 2: 1}, 4),
        ({0: 3, 1: 0, 2: 0}, 6),
    ],
)
def test_the_fewest_leading_records_that_contain_what_is_there(present: dict[int, int], needed: int) -> None:
    assert covering(PLACES, present) == needed


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 60))
def test_a_prefix_is_covered_by_itself_and_by_no_shorter_one(places: list[int], length: int) -> None:
    length = min(length, len(places))
    assert covering(places, counts(places[:length], 4)) == length
