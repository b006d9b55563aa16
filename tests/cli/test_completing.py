"""Names that a shell is offered: of the broker that the command line names, in time, and never with an error."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from halfmoon.cli import completing
from halfmoon.cli.completing import TIMEOUT, command_of
from tests.cli.conftest import CommandLine


@pytest.fixture
def names(broker_cli: CommandLine, name: str) -> Iterator[str]:
    """Topics NAME-a, NAME-b and other-NAME."""
    topics = [f"{name}-a", f"{name}-b", f"other-{name}"]
    broker_cli.ok("topic", "create", *topics, "-p", "1")
    yield name
    broker_cli("topic", "delete", *topics)


def commit(servers: str, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


PATIENT = "30"
"""Seconds: a machine under load must not fail a test."""


def completed(line: str, servers: str = "", **environment: str) -> list[str]:
    """What bash is offered for the last word; each word was one for bash too, but for `:` and `=`."""
    words = line.replace(":", "\n:\n").replace("=", "\n=\n").replace(" ", "\n").split("\n")
    words = [word for word in words[:-1] if word] + words[-1:]
    given = {TIMEOUT: PATIENT} | ({"HALFMOON_BOOTSTRAP_SERVER": servers} if servers else {})
    done = subprocess.run(
        [sys.executable, "-m", "halfmoon"],
        env={
            **os.environ, "_HALFMOON_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words),
            "COMP_CWORD": str(len(words) - 1), **given, **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_topics(names: str, bootstrap_servers: str) -> None:
    both = [f"{names}-a", f"{names}-b"]
    assert completed(f"halfmoon topic describe {names}", bootstrap_servers) == both
    assert completed(f"halfmoon topic describe {names}-a {names}", bootstrap_servers) == [f"{names}-b"]
    assert completed(f"halfmoon consume -e other-{names}", bootstrap_servers) == [f"other-{names}"]
    assert completed(f"halfmoon produce -b {bootstrap_servers} {names}") == both
    assert completed(f"halfmoon produce --bootstrap-server={bootstrap_servers} {names}") == both
    assert completed(f"halfmoon view create v --from {names}", bootstrap_servers) == both
    assert completed("halfmoon topic describe nothing-", bootstrap_servers) == []
    assert completed(f"halfmoon topic create {names}", bootstrap_servers) == []


def test_topics_of_scheduled_messages(names: str, bootstrap_servers: str) -> None:
    both = [f"{names}-a", f"{names}-b"]
    assert completed(f"halfmoon delay list -t {names}", bootstrap_servers) == both
    assert completed(f"halfmoon schedule pause n -t {names}", bootstrap_servers) == both


def test_groups(names: str, bootstrap_servers: str, broker_cli: CommandLine) -> None:
    for group in (f"{names}-g", f"{names}-$(date)", f"{names} x", f"{names}-'q"):
        commit(bootstrap_servers, group, f"{names}-a")
    assert completed(f"halfmoon group describe {names}", bootstrap_servers) == [f"{names}-g"], (
        "no shell runs the others"
    )
    assert completed(f"halfmoon consume {names}-a -g {names}", bootstrap_servers) == [f"{names}-g"]
    assert completed(f"halfmoon group delete {names}", bootstrap_servers) == [f"{names}-g"]
    assert completed(f"halfmoon dlq purge {names}", bootstrap_servers) == [f"{names}-g"]
    assert completed(f"halfmoon delay list -g {names}", bootstrap_servers) == [f"{names}-g"]
    broker_cli.ok("group", "delete", f"{names}-g", f"{names}-$(date)", f"{names} x", f"{names}-'q")


def test_internal_topics_are_offered_to_those_who_ask_for_them(names: str, bootstrap_servers: str) -> None:
    commit(bootstrap_servers, f"{names}-internal", f"{names}-a")
    assert not [each for each in completed("halfmoon topic describe ", bootstrap_servers) if each.startswith("__")]


def test_nobody_there_is_silence() -> None:
    assert completed("halfmoon topic describe a", "127.0.0.1:1") == []
    assert completed("halfmoon topic describe a", "not an address") == []
    assert completed("halfmoon topic describe a", HALFMOON_COMMAND_CONFIG="/nowhere") == []
    assert completed("halfmoon consume --protocol rocketmq a", "127.0.0.1:1") == []


def test_a_broker_that_does_not_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        quick = time.monotonic()
        assert completed("halfmoon topic describe a", "127.0.0.1:1") == []
        quick = time.monotonic() - quick
        begun = time.monotonic()
        assert completed("halfmoon topic describe a", f"127.0.0.1:{port}", **{TIMEOUT: "no number"}) == []
        assert time.monotonic() - begun < 5 * quick + 2 * completing.TIME_S


@pytest.mark.parametrize(
    ("words", "at", "together", "at_then", "command"),
    [
        (["halfmoon", "topic", "de"], 2, ["halfmoon", "topic", "de"], 2, "topic"),
        (["halfmoon", "to"], 1, ["halfmoon", "to"], 1, ""),
        (["halfmoon", "produce", "-b", "h", ":", "9", "x"], 6, ["halfmoon", "produce", "-b", "h:9", "x"], 4, "produce"),
        (
            ["halfmoon", "produce", "--b", "=", "h", ":", "9", ""],
            7,
            ["halfmoon", "produce", "--b=h:9", ""],
            3,
            "produce",
        ),
        (["halfmoon", "produce", "-b", "h", ":"], 4, ["halfmoon", "produce", "-b", "h:"], 3, "produce"),
        (["halfmoon", "consume", "a"], 3, ["halfmoon", "consume", "a"], 3, "consume"),
    ],
)
def test_what_bash_has_taken_apart(words: list[str], at: int, together: list[str], at_then: int, command: str) -> None:
    environment = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(at)}
    assert command_of(environment) == command
    assert environment == {"COMP_WORDS": "\n".join(together), "COMP_CWORD": str(at_then)}


def test_words_with_blanks_between_them() -> None:
    environment = {"COMP_WORDS": "halfmoon topic de", "COMP_CWORD": "2"}
    assert command_of(environment) == "topic"
    assert environment == {"COMP_WORDS": "halfmoon topic de", "COMP_CWORD": "2"}


@pytest.mark.parametrize(
    ("said", "command"), [("halfmoon to", ""), ("halfmoon topic ", "topic"), ("halfmoon topic de", "topic"), ("", "")]
)
def test_what_zsh_and_fish_say(said: str, command: str) -> None:
    assert command_of({"_TYPER_COMPLETE_ARGS": said}) == command


def asked(shell: str, said: str, servers: str) -> str:
    environment = {
        **os.environ, "_HALFMOON_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": said,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args", "HALFMOON_BOOTSTRAP_SERVER": servers, TIMEOUT: PATIENT,
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-m", "halfmoon"], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_zsh_and_fish(names: str, bootstrap_servers: str) -> None:
    assert asked("fish", f"halfmoon topic describe {names}", bootstrap_servers).split() == [f"{names}-a", f"{names}-b"]
    assert f'"{names}-a"\n"{names}-b"' in asked("zsh", f"halfmoon topic describe {names}", bootstrap_servers)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_in_a_bash(names: str, bootstrap_servers: str, tmp_path: Path) -> None:
    halfmoon = tmp_path / "halfmoon"
    halfmoon.write_text(f'#!/bin/sh\nexec {sys.executable} -m halfmoon "$@"\n')
    halfmoon.chmod(0o755)
    script = f"""
        export PATH={tmp_path}:$PATH {TIMEOUT}={PATIENT}
        source <(_HALFMOON_COMPLETE=source_bash halfmoon)
        COMP_WORDS=(halfmoon topic describe -b {bootstrap_servers.replace(":", " : ")} {names})
        COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _halfmoon_completion halfmoon
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == ([f"{names}-a", f"{names}-b"], "")


def test_completing_imports_one_command() -> None:
    probe = (
        "import os, sys; os.environ.update(_HALFMOON_COMPLETE='complete_bash', COMP_WORDS='halfmoon\\ntopic\\nde',"
        " COMP_CWORD='2')\n"
        "from halfmoon.cli.main import run\n"
        "try: run([])\n"
        "except SystemExit: pass\n"
        "heavy = {'kafka', 'halfmoon.cli.produce', 'halfmoon.cli.pipeline', 'halfmoon.server'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
