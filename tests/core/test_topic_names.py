"""Legal topic names."""

from __future__ import annotations

import pytest

from halfmoon.core.topic_names import check_topic_name, is_legal
from halfmoon.errors import BrokerError, Fault


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "_", "x" * 249])
def test_legal(name):
    check_topic_name(name)
    assert is_legal(name)


@pytest.mark.parametrize("name", [None, "", ".", "..", "x" * 250, "a b", "a/b", "a\n", "ä", "٣", "a\0"])
def test_illegal(name):
    assert not is_legal(name)
    with pytest.raises(BrokerError) as caught:
        check_topic_name(name)
    assert caught.value.fault is Fault.INVALID_TOPIC_EXCEPTION
