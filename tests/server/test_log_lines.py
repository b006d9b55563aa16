"""A log entry is one line: what happened, and its facts, as text or as JSON."""

from __future__ import annotations

import ast
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import halfmoon
from halfmoon.core.records import walk
from halfmoon.server.log_lines import LONGEST, JsonLines, TextLines, style_of
from halfmoon.services.common.printing import printable

PACKAGE = Path(halfmoon.__file__).parent
METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
NOT_THE_BROKERS = ("demo/", "pipeline/", "cli/", "testing/", "kafka/")


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("halfmoon.kafka", logging.WARNING, __file__, 1, message, arguments, None)


def entry(message: str, *arguments: object) -> str:
    return TextLines().format(record(message, *arguments))


def as_json(message: str, *arguments: object) -> dict[str, object]:
    line = JsonLines().format(record(message, *arguments))
    assert len(line.splitlines()) == 1
    found: dict[str, object] = json.loads(line)
    return found


def test_an_ordinary_message_stays_as_it_is() -> None:
    assert entry("event=recovered frames=%d name=%s", 3, "größe").endswith(
        " level=WARNING logger=halfmoon.kafka event=recovered frames=3 name=größe"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [("two words", '"two words"'), ('say "hi"', '"say \\"hi\\""'), ("a=b", '"a=b"'), ("", '""'), (None, "None")],
)
def test_a_fact_that_is_no_word_is_quoted(value: object, shown: str) -> None:
    assert entry("event=e reason=%s next=%d", value, 1).endswith(f"event=e reason={shown} next=1")
    assert as_json("event=e reason=%s next=%d", value, 1)["reason"] == value


@pytest.mark.parametrize("hostile", ["\n", "\r\n", "\x1b[2J", "\x00", "\x85", "\u2028", "\udc80"])
def test_a_name_cannot_end_the_line(hostile: str) -> None:
    for template in ("event=e group=%s", "group: %s"):
        line = entry(template, f"a{hostile}level=ERROR all is lost")
        assert len(line.splitlines()) == 1
        assert "\x1b" not in line
        line.encode()
        found = as_json(template, f"a{hostile}level=ERROR all is lost")
        assert found["level"] == "WARNING"
        assert any(f"a{hostile}level" in str(value) for value in found.values())


def test_a_long_message_is_cut() -> None:
    assert len(printable("x" * 1_000_000, LONGEST)) < LONGEST + 40
    assert printable("x" * LONGEST, LONGEST) == "x" * LONGEST
    assert len(str(as_json("event=e name=%s", "x" * 1_000_000)["name"])) < LONGEST + 40


def test_a_traceback_stays_readable() -> None:
    try:
        raise RuntimeError("first\nsecond")
    except RuntimeError as error:
        failed = logging.LogRecord("n", logging.ERROR, __file__, 1, "failed", (), (type(error), error, None))
    assert TextLines().format(failed).endswith("failed\nRuntimeError: first\nsecond")
    assert json.loads(JsonLines().format(failed))["exception"] == "RuntimeError: first\nsecond"


def test_json_has_the_facts_by_name_and_numbers_as_numbers() -> None:
    found = as_json("event=moved group=%s offset=%d part=%r pause_s=%.1f verdict=deny level=%s", "g", 7, 3, 0.25, "x")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(found.pop("time")))
    assert found == {
        "level": "WARNING", "logger": "halfmoon.kafka", "event": "moved", "group": "g", "offset": 7, "part": 3,
        "pause_s": "0.2", "verdict": "deny", "level_": "x",
    }  # fmt: skip


def test_what_libraries_log_is_a_message() -> None:
    assert as_json("Executing %s took %.3f seconds", "<Task>", 0.25)["message"] == "Executing <Task> took 0.250 seconds"
    assert entry("Executing %s", "<Task>").endswith("logger=halfmoon.kafka Executing <Task>")


# -- one style everywhere ----------------------------------------------------------------------------------------------


def templates() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a logger in the code of the broker and its clients, and where it stands."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = str(path.relative_to(PACKAGE))
        if where.startswith(NOT_THE_BROKERS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in METHODS
                and re.search(r"(^|\.|_)log(ger)?$", ast.unparse(node.func.value))
            ):
                yield f"{where}:{node.lineno}", node


def test_every_line_of_the_log_is_an_event_and_its_facts() -> None:
    found = list(templates())
    assert len(found) > 80
    wrong = []
    for where, call in found:
        template = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
        style = style_of(template) if isinstance(template, str) else None
        if style is None or {"time", "level", "logger", "exception"} & {name for name, _ in style.facts}:
            wrong.append(f"{where}: {template}")
    assert wrong == []


# -- the process -------------------------------------------------------------------------------------------------------


def test_a_broker_logs_json(tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text(
        "logging: {format: json}\nlisteners: {kafka: {bind: '127.0.0.1:0'}, http: {bind: '127.0.0.1:0'}}\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "halfmoon", "serve", "--config", "broker.yaml"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        address = re.match(r"ready kafka=(\S+) ", ready)
        assert address is not None, ready
        process.terminate()
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    lines = [json.loads(line) for line in err.splitlines()]
    by_event = {line["event"]: line for line in lines if "event" in line}
    started = by_event["started"]
    assert started["version"] == halfmoon.__version__
    assert started["build"] in ("pure", "compiled")
    assert started["validation"] == walk.FORM
    assert started["config"] == str(tmp_path / "broker.yaml")
    assert started["data"] == str(tmp_path / "data")
    assert (started["kafka"], started["rocketmq"], started["namesrv"]) == (address[1], "off", "off")
    assert started["http"].startswith("127.0.0.1:")
    assert by_event["stopping"]["signal"] == by_event["stopped"]["signal"] == "SIGTERM"
    assert lines[-1] == by_event["stopped"]
