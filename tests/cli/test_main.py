from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from halfmoon import __version__
from halfmoon.cli import starting, topic
from halfmoon.cli.commands import COMMANDS, GROUPS, command_line
from halfmoon.server.build import build
from tests.cli.conftest import CommandLine
from tests.yardstick import yardsticks


def test_version(cli: CommandLine) -> None:
    assert cli.ok("--version").out == f"halfmoon {__version__} ({build()})\n"


@pytest.mark.parametrize("arguments", [[], ["topic"], ["pipeline", "report"]])
def test_no_command_shows_what_there_is_and_is_no_error(cli: CommandLine, arguments: list[str]) -> None:
    shown = cli.ok(*arguments)
    assert shown.err == ""
    assert shown.out.startswith(" ".join(["Usage: halfmoon", *arguments]))
    assert "Commands:" in shown.out


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


@pytest.mark.parametrize("path", list(commands(typer.main.get_command(command_line()))), ids=" ".join)
def test_help_is_readable_at_80_columns(
    cli: CommandLine, path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli.ok(*path, "--help").out.splitlines()
    usage, *rest = lines
    assert usage.startswith(" ".join(["Usage: halfmoon", *path]))
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in rest if line.endswith("...")] == [], "a summary is cut"
    described = [line for line in rest if line.startswith("  ") and len(line.split()) > 1]
    assert described


@pytest.mark.parametrize(
    "command",
    [
        ["serve"],
        ["produce"],
        ["consume"],
        ["plugins"],
        ["topic", "create"],
        ["topic", "list"],
        ["topic", "describe"],
        ["topic", "alter"],
        ["topic", "delete"],
        ["group", "list"],
        ["group", "describe"],
        ["group", "reset"],
        ["group", "delete"],
        ["config", "check"],
    ],
)
def test_every_command_explains_itself(cli: CommandLine, command: list[str]) -> None:
    # The colours that a CI system may ask for would split the words.
    said = re.sub(r"\x1b\[[0-9;]*m", "", cli.ok(*command, "--help").out)
    assert "Usage: halfmoon " + " ".join(command) in said
    if command != ["serve"]:
        assert "--output" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bla"], "No such command 'bla'"),
        (["topic", "bla"], "No such command 'bla'"),
        (["topic", "list", "--bla"], "--bla"),
        (["topic", "create"], "Missing argument"),
        (["topic", "create", "x", "-c", "novalue"], "'novalue' is not NAME=VALUE"),
        (["topic", "alter", "x"], "nothing to alter"),
        (["consume", "x", "-f", "%q"], "%q is not a field"),
        (["consume", "x", "--from", "yesterday"], "'yesterday' is neither beginning, end nor a time"),
        (["consume", "x", "--last", "3", "--from", "end"], "--last excludes"),
        (["consume", "x", "-g", "g", "--offset", "1"], "--group excludes"),
        (["group", "reset", "g"], "specify one of --to-earliest"),
        (["produce", "x", "-t", "noon"], "'noon' is not a time"),
        (["produce", "x", "-K", ""], "a delimiter cannot be empty"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(cli: CommandLine, arguments: list[str], said: str) -> None:
    line = cli(*arguments).failed_with(2)
    assert said in line
    assert "--help)" in line


def test_no_broker_is_one_line_that_says_what_to_do(cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    line = cli("topic", "list", "-b", f"127.0.0.1:{port}").failed_with(1)
    assert line == (
        f"halfmoon: no broker answers at 127.0.0.1:{port}: Connection refused; "
        "start one (halfmoon serve) or specify another address (-b HOST:PORT)"
    )


def test_an_address_that_is_none(cli: CommandLine) -> None:
    assert cli("topic", "list", "-b", "here:there").failed_with(1) == "halfmoon: 'here:there' is not HOST:PORT"


def test_what_nobody_foresaw_is_one_line_too(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(topic, "admin", broken)
    line = cli("topic", "list").failed_with(1)
    assert line == "halfmoon: unexpected RuntimeError: first line second line (HALFMOON_DEBUG=1 shows where)"
    monkeypatch.setenv("HALFMOON_DEBUG", "1")
    with pytest.raises(RuntimeError):
        cli("topic", "list")


def test_help_and_completion_import_no_client_and_no_broker() -> None:
    # What they import is what makes them slow; the time itself depends on the machine.
    probe = (
        "import sys; from halfmoon.cli.main import run; run(['--help'])\n"
        "heavy = {'kafka', 'uvloop', 'halfmoon.server', 'halfmoon.core.kernel', 'rich.progress'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_commands_of_what_is_off_are_not_listed(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "broker.yaml"
    monkeypatch.setenv("HALFMOON_CONFIG", str(config))

    def listed() -> set[str]:
        return {line.split()[0] for line in cli("--help").out.splitlines() if re.match(r"  \w", line)}

    assert {"view", "group", "message", "topic", "serve"} <= listed()
    config.write_text("plugins: {view: {}}")
    everything = listed()
    config.write_text("plugins: {view: off}\nservices: {groups: off, keyindex: off, quotas: off}")
    assert everything - listed() == {"view", "group", "message"}
    assert "no broker answers" in cli("view", "list", "-b", "127.0.0.1:1").failed_with(1)


def test_help_is_quick() -> None:
    # Usual: 2.4.
    assert yardsticks([sys.executable, "-m", "halfmoon", "--help"]) < 4


def test_completion_for_bash() -> None:
    environment = {
        **os.environ,
        "_HALFMOON_COMPLETE": "complete_bash",
        "COMP_WORDS": "halfmoon topic de",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-m", "halfmoon"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["describe", "delete"]


def test_an_output_that_nobody_reads_ends_in_silence(tmp_path: Path) -> None:
    # `| head` that has gone already: the pipe's reading end is closed before anything is written.
    reading, writing = os.pipe()
    os.close(reading)
    (tmp_path / "broker.yaml").write_text("log: {flush: interval}\n")
    done = subprocess.run(
        [sys.executable, "-m", "halfmoon", "plugins"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_the_command_that_is_asked_for_is_made() -> None:
    assert [group.name for group in command_line("topic").registered_groups] == ["topic"]
    assert command_line("topic").registered_commands == []
    assert [command.name for command in command_line("serve").registered_commands] == ["serve"]
    for all_of_them in ("", "--help", "tpic"):
        made = command_line(all_of_them)
        assert [command.name for command in made.registered_commands] == list(COMMANDS)
        assert [group.name for group in made.registered_groups] == list(GROUPS)


def test_a_command_imports_no_other() -> None:
    """Each start of a broker would wait for them."""
    probe = (
        "import sys; from halfmoon.cli.main import run; run(['serve', '--help'])\n"
        "print(*sorted(name for name in sys.modules if name.startswith('halfmoon.cli.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    imported = {name.removeprefix("halfmoon.cli.") for name in done.stderr.split()}
    assert imported == {"main", "commands", "errors", "output", "serve", "starting"}


def test_what_is_listed_is_what_each_command_says_of_itself(cli: CommandLine) -> None:
    """`halfmoon --help` imports no command, so it has their summaries written down."""
    command = typer.main.get_command(command_line())
    assert {name: below.get_short_help_str(limit=200) for name, below in command.commands.items()} == {  # type: ignore[attr-defined]
        **{name: summary for name, (_, summary) in COMMANDS.items()},
        **GROUPS,
    }
    only_listed = typer.main.get_command(command_line(runs=False))
    assert list(only_listed.commands) == list(command.commands)  # type: ignore[attr-defined]


def test_help_imports_no_command() -> None:
    probe = (
        "import sys; from halfmoon.cli.main import run; run(['--help'])\n"
        "print(*sorted(name for name in sys.modules if name.startswith('halfmoon.cli.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert {name.removeprefix("halfmoon.cli.") for name in done.stderr.split()} == {
        "main", "commands", "errors", "output", "starting",
    }  # fmt: skip


PLAIN = ["--data-dir", "d", "--kafka=127.0.0.1:0", "--config", "b.yaml", "--unset-config", "a", "--unset-config=b"]


def test_plain_options_of_serve_are_read_without_the_parser() -> None:
    assert starting.options(["serve", *PLAIN]) == {
        "data_dir": "d", "kafka": "127.0.0.1:0", "config": Path("b.yaml"), "unset_configs": ["a", "b"],
    }  # fmt: skip
    assert starting.options(["serve"]) == {}
    declared = {param.name for param in typer.main.get_command(command_line("serve")).commands["serve"].params}  # type: ignore[attr-defined]
    read = {f"--{name.replace('_', '-')}" for name in declared}
    assert {option for option in read if starting.options(["serve", option, "x"])} == read


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["topic", "list"], ["serve", "--help"], ["serve", "-h"], ["serve", "--kafka"], ["serve", "--kafka="],
        ["serve", "--kafka", "--help"], ["serve", "--data_dir", "d"], ["serve", "--no-such", "x"], ["serve", "extra"],
        ["serve", "--", "--kafka"], ["--version", "serve"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_whatever_else_is_for_the_parser(arguments: list[str]) -> None:
    assert starting.options(arguments) is None


def test_a_misspelt_command_is_told_its_name(cli: CommandLine) -> None:
    assert "Did you mean 'topic'" in cli("tpic", "list").failed_with(2)
    assert "Did you mean 'list'" in cli("topic", "lisst").failed_with(2)
