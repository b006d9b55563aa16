"""docs/client.md: its programs run and print what they should, and its tables say what the code says."""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import msgspec
import pytest

import halfmoon.client
import halfmoon.client.aio
from halfmoon.client import ClientError, ConsumeFrom, Context, Message, PullResult, ReceivedMessage, SendResult, errors
from halfmoon.client.base import TransactionResult
from halfmoon.client.engine.consumer_settings import ConsumerSettings
from halfmoon.client.engine.consuming import ConsumerCounters
from halfmoon.client.engine.lite_pulling import LiteSettings
from halfmoon.client.engine.producer_settings import Counters, ProducerSettings
from halfmoon.client.engine.producing import BATCH_BYTES
from halfmoon.client.making import MAX_GROUP_CHARACTERS
from halfmoon.client.messages import MAX_BODY_BYTES, MAX_TOPIC_CHARACTERS, MOST_PLAIN_BYTES
from halfmoon.client.threads.producers import CHECK_THREADS, MOST_IN_FLIGHT
from halfmoon.remoting import command, properties
from halfmoon.testing import Broker

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/client.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- test: python -->\n```python\n(.*?)```", TEXT, re.DOTALL)
WORDS = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`|```python\n.*?```", TEXT, re.DOTALL))))
"""All that stands in code."""

CLIENTS = ["Producer", "TransactionProducer", "PushConsumer", "PullConsumer", "LitePullConsumer"]


# --------------------------------------------------------------------------------------------------------- the programs

ID, KEYS = r"[0-9A-F]{32}", r"\['order-17'\]"
PRINTED = {
    "accounts": rf"orders paid {KEYS} b'17 was paid'\n",
    "bank": r"charges %RETRY%bank 1\n",
    "shipping": r"\[b'placed', b'paid', b'shipped'\]\n",
    "shop": rf"TransactionState\.COMMIT {ID}\n",
    "audit": rf"0 {KEYS}\n",
    "reports": rf"0 {KEYS}\n",
    "readers": r"\[b'hello'\]\n",
    "billing": rf"(\d 0 {ID}\n)?",
    "tickets": r"(delay reminders TIMER_DEL(?:IVER|AY)_MS=\d+\n)+\d+\n",
}
"""By a group that a program names, what it prints: of several, the first here counts."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    listeners = {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}
    with Broker(config={"listeners": listeners, "topics": {"partitions": 4}}) as running:
        yield running


def test_the_programs_from_top_to_bottom(broker: Broker, tmp_path: Path) -> None:
    """Each in a process of its own, where every warning is an error."""
    assert len(EXAMPLES) == TEXT.count("```python\n") == 10
    environment = {**os.environ, "NAMESRV_ADDR": broker.namesrv, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    seen = set()
    for program in EXAMPLES:
        (group, printed) = next((group, text) for group, text in PRINTED.items() if f'("{group}"' in program)
        seen.add(group)
        code = program.replace("127.0.0.1:9876", broker.namesrv)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True,
            timeout=30,
        )  # fmt: skip
        assert done.returncode == 0, (program, done.stderr)
        assert not re.search("Traceback|Warning:", done.stderr), (program, done.stderr)
        assert re.fullmatch(printed, done.stdout), (program, done.stdout, done.stderr)
    assert seen == set(PRINTED)


# ----------------------------------------------------------------------------------------------------------- the tables


def table(mark: str, end: str) -> list[list[str]]:
    """The cells of a marked table, row by row."""
    text = TEXT.split(f"<!-- {mark} -->\n")[1].split(f"<!-- /{end} -->")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def value(text: str) -> object:
    """A default, as it is written in Python."""
    name, _, member = text.partition(".")
    return ConsumeFrom[member] if name == "ConsumeFrom" else ast.literal_eval(text)


@pytest.mark.parametrize("kind", [ProducerSettings, ConsumerSettings, LiteSettings])
def test_options(kind: type[msgspec.Struct]) -> None:
    rows = table(f"options: {kind.__name__}", "options")
    written = [(name.strip("`"), value(default.strip("`"))) for name, default, _, _ in rows]
    assert written == [(field.name, field.default) for field in msgspec.structs.fields(kind)]
    for name, _, unit, _ in rows:
        ending = name.strip("`").rpartition("_")[2]
        assert (ending in ("ms", "bytes")) == (unit.removeprefix("Unix ") in ("ms", "bytes")), name
        if ending in ("ms", "bytes"):
            assert unit.removeprefix("Unix ") == ending, name


def test_the_bounds_of_options_are_those_that_are_checked() -> None:
    for name, _, _, said in table("options: ConsumerSettings", "options"):
        option = name.strip("`")
        for bound, beyond in re.findall(r"([\d,]+) to [\d,]+$|to ([\d,]+)$", said):
            number = int((bound or beyond).replace(",", ""))
            with pytest.raises(errors.ConfigError, match=f"{option} is "):
                ConsumerSettings(**{option: number - 1 if bound else number + 1})
        if found := re.search(r"to ([\d,]+)$", said):
            number = int(found[1].replace(",", ""))
            ConsumerSettings(**{"pull_timeout_ms": 100_000, option: number})
            with pytest.raises(errors.ConfigError, match=f"{option} is "):
                ConsumerSettings(**{"pull_timeout_ms": 100_000, option: number + 1})


def test_errors() -> None:
    written = {(name.strip("`"), base) for name, base, *_ in table("errors", "errors")}
    found = [each for each in vars(errors).values() if inspect.isclass(each) and each.__module__ == errors.__name__]
    assert written == {
        (each.__name__, "".join(base.__name__ for base in each.__bases__ if base.__module__ == builtins.__name__))
        for each in found
        if each is not ClientError
    }


def test_limits() -> None:
    numbers = [
        MAX_GROUP_CHARACTERS, MAX_TOPIC_CHARACTERS, MAX_BODY_BYTES, properties.MAX_BYTES, BATCH_BYTES, MOST_IN_FLIGHT,
        MOST_PLAIN_BYTES, command.MAX_FRAME_BYTES,
    ]  # fmt: skip
    assert [cell.split()[0] for _, cell in table("limits", "limits")] == [f"{number:,}" for number in numbers]
    assert f"`check_threads` ({CHECK_THREADS})" in TEXT


def test_loggers() -> None:
    """Each that is made somewhere has a row."""
    used = {
        name
        for path in (ROOT / "halfmoon/client").rglob("*.py")
        for name in re.findall(r'getLogger\("(.*?)"\)', path.read_text(encoding="utf-8"))
    }
    assert set(re.findall(r"^\| `(halfmoon\.[\w.]+)` \|", TEXT, re.MULTILINE)) == used


# ------------------------------------------------------------------------------------------------------------ the names


@pytest.mark.parametrize("name", halfmoon.client.__all__)
def test_every_name_occurs(name: str) -> None:
    assert name in WORDS
    exported = getattr(halfmoon.client, name)
    if inspect.isclass(exported) and issubclass(exported, Enum):
        assert set(exported.__members__) <= WORDS


@pytest.mark.parametrize(
    "kind", [Message, SendResult, ReceivedMessage, Context, PullResult, TransactionResult, Counters, ConsumerCounters]
)
def test_every_field_occurs(kind: type) -> None:
    fields = {name for name in dir(kind) if not name.startswith("_")}
    assert fields
    assert fields <= WORDS


@pytest.mark.parametrize("name", CLIENTS)
def test_every_method_and_argument_occurs(name: str) -> None:
    client = getattr(halfmoon.client, name)
    methods = {each for each in dir(client) if not each.startswith("_")} - {"group", "settings"}
    arguments = {
        argument.name
        for each in (client, *(getattr(client, method) for method in methods))
        if callable(each)
        for argument in inspect.signature(each).parameters.values()
        if argument.kind is argument.KEYWORD_ONLY
    }
    assert len(methods) > 3
    assert methods | arguments <= WORDS


@pytest.mark.parametrize("name", CLIENTS)
def test_asyncio_has_the_same_names(name: str) -> None:
    with_threads, with_asyncio = (
        {each for each in dir(getattr(module, name)) if not each.startswith("_")}
        for module in (halfmoon.client, halfmoon.client.aio)
    )
    assert with_threads - with_asyncio == ({"send_async"} if "Producer" in name else set())
    assert halfmoon.client.__all__ == halfmoon.client.aio.__all__


def test_what_is_not_awaited() -> None:
    (sentence,) = re.findall(r"((?:`\w+`[,\s and]+)+)do not\s+wait", TEXT)
    not_awaited = set(re.findall(r"`(\w+)`", sentence))
    for consumer in halfmoon.client.aio.PushConsumer, halfmoon.client.aio.LitePullConsumer:
        methods = {name for name, _ in inspect.getmembers(consumer, inspect.isfunction) if not name.startswith("_")}
        assert not_awaited & methods == {
            name for name in methods if not inspect.iscoroutinefunction(getattr(consumer, name))
        }


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", TEXT)
    assert links
    for link in links:
        file, _, anchor = link.partition("#")
        target = ROOT / "docs" / (file or "client.md")
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, link
