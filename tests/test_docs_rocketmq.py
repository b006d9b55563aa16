"""docs/rocketmq.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import yaml

from halfmoon.adapters.rocketmq.registry import Port
from halfmoon.adapters.rocketmq.request import registered
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.config.sections import decode_section
from halfmoon.config.settings import load_settings

TEXT = (Path(__file__).parents[1] / "docs" / "rocketmq.md").read_text(encoding="utf-8")
WHERE = {Port.BROKER: "broker", Port.NAMES: "name service", Port.BROKER | Port.NAMES: "broker and name service"}


def test_the_table_of_requests() -> None:
    table = TEXT.split("<!-- requests -->")[1].split("<!-- /requests -->")[0]
    written = re.findall(r"^\| (\d+) \| (\w+) \| ([\w ]+) \| ([\w ]+) \|$", table, re.MULTILINE)
    assert written == [
        (str(code), each.name, WHERE[each.port], "this machine" if each.changes else "everywhere")
        for code, each in sorted(registered().items())
    ]


def test_the_configuration() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    listener = load_settings(yaml.safe_load(block), {}, {}).listeners.rocketmq
    assert listener is not None
    assert (str(listener.bind), str(listener.namesrv)) == ("127.0.0.1:10911", "127.0.0.1:9876")


def test_the_settings_and_their_defaults() -> None:
    table = TEXT.split("<!-- settings -->")[1].split("<!-- /settings -->")[0]
    written = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))
    assert list(written) == [field.encode_name for field in msgspec.structs.fields(RocketmqListener)]
    said = {name: yaml.safe_load(text) for name, text in written.items()}
    assert decode_section(RocketmqListener, said, "$") == RocketmqListener()
