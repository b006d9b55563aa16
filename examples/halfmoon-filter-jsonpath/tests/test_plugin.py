"""The plugin in a whole broker. It has to be installed for these: `pip install -e '.[test]'`."""

from __future__ import annotations

import pytest

from halfmoon.plugin import SettingError
from halfmoon.testing import Broker


def test_the_broker_takes_it() -> None:
    with Broker(config={"plugins": {"jsonpath": {"max_expression": 500, "max_value_bytes": "1MiB"}}}):
        pass


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_expression": 0}, "$.plugins.jsonpath.max_expression: got 0, expected at least 1 character"),
        ({"max_expression": "x"}, "$.plugins.jsonpath.max_expression: got 'x', expected a whole number"),
        ({"max_value": 5}, "$.plugins.jsonpath.max_value: no such setting; did you mean max_value_bytes?"),
    ],
)
def test_a_wrong_setting_stops_the_start(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(SettingError) as caught:
        Broker(config={"plugins": {"jsonpath": settings}}).start()
    assert str(caught.value) == problem
