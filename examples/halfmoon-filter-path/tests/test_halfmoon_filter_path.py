from __future__ import annotations

import halfmoon_filter_path as plugin
import pytest

from halfmoon.testing import Broker, Message, check_filter, check_filter_error


def test_a_broker_takes_the_plugin() -> None:
    with Broker(plugins=[plugin]) as broker:
        assert "halfmoon_filters" in broker.app.plugins.infos[-1].hooks


def test_what_it_lets_through() -> None:
    check_filter(
        plugin.PathFilter,
        '$.customer.tags[1] == "vip"',
        matching=[
            Message('{"customer": {"tags": ["new", "vip"]}}'),
            Message('{"customer": {"t\\u0061gs": [1, "vip"]}}'),
        ],
        others=[
            Message('{"customer": {"tags": ["vip"]}}'),
            Message('{"customer": "vip"}'),
            Message("vip"),
            Message(""),
        ],
    )
    check_filter(plugin.PathFilter, "$.a", matching=[Message('{"a": null}')], others=[Message("{}"), Message("[1]")])
    check_filter(plugin.PathFilter, "$ == 1", matching=[Message("1"), Message("1.0")], others=[Message("true")])


@pytest.mark.parametrize(("expression", "position"), [("a", 0), ("$.", 1), ("$.a[x]", 3), ("$.a == x", 7)])
def test_what_it_refuses(expression: str, position: int) -> None:
    check_filter_error(plugin.PathFilter, expression, position=position)
