"""Write the reference of the command line from the command line itself: `python tools/cli_reference.py docs/cli.md`.

Made from the declared options, not from the printed help, so that neither terminal nor rich changes it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from halfmoon.cli.commands import command_line

HEAD = """\
# The command line

<!-- `make docs` generates this page from the commands. Change the commands, not the page. -->

Every command has `--help`, which says the same as this page.

- **Which broker.** The address is `-b HOST:PORT`, else `HALFMOON_BOOTSTRAP_SERVER`, else `127.0.0.1:9092`. The commands
  work with Apache Kafka too. `produce` and `consume` also speak [RocketMQ's
  protocol](rocketmq.md#from-the-command-line) (`--protocol rocketmq`); the name server is `--namesrv HOST:PORT`, else
  `HALFMOON_NAMESRV`, else `NAMESRV_ADDR`, else `127.0.0.1:9876`.
- **Output.** Results go to stdout, as text for people or with `-o json` for programs; everything else goes to stderr.
  The text may change. JSON fields keep their names; a field that is renamed appears under both names for one version.
- **Exit codes.** 0 success, 1 failure or refusal, 2 invalid command line, 130 interrupted by Ctrl-C.
- **Shell completion.** `halfmoon --install-completion` for bash, zsh, fish and PowerShell. It completes commands and
  options, and asks the broker for names of topics and groups: the one of `-b`, `--command-config` or the environment.
  It waits for a second, or for as long as `HALFMOON_COMPLETION_TIMEOUT_S` says. Internal topics are offered behind
  `__`.
- **Patterns.** `topic describe`, `alter`, `delete` and `consume` take shell patterns (`*`, `?`, `[a-z]`) instead of
  names; quote them for your shell. They match no internal topics. `topic delete 'orders-*'` lists the topics and asks;
  with `--yes` or `--dry-run` it does not ask. A `consume` without `--group` reads the topics that are there when it
  starts.
- **Files.** `halfmoon produce photos --file *.jpg --key-from-name` sends each file as one record. `halfmoon consume
  photos -e --to-files DIR --file-name %k` writes each value to a file; a file with the same name is replaced. `/` in a
  name becomes `_`.

"""


def reference() -> str:
    """The whole document."""
    command = typer.main.get_command(command_line())
    listed = "".join(f"{row}\n" for row in _listed(command, "halfmoon"))
    return f"{HEAD}| command | |\n|---|---|\n{listed}" + "".join(_sections(command, "halfmoon"))


def _listed(command: Any, path: str) -> list[str]:
    """A row for each command, which leads to its section."""
    commands = getattr(command, "commands", None)
    if commands:
        return [row for name, child in commands.items() for row in _listed(child, f"{path} {name}")]
    first_sentence = command.help.partition("\n")[0].partition(". ")[0].removesuffix(".")
    return [f"| [{path}](#{path.replace(' ', '-')}) | {first_sentence}. |"]


def _sections(command: Any, path: str) -> list[str]:
    commands = getattr(command, "commands", None)
    if commands:
        return [text for name, child in commands.items() for text in _sections(child, f"{path} {name}")]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and _is_shown(param)]
    usage = " ".join([path, "[OPTIONS]", *(argument.metavar or argument.name for argument in arguments)])
    text = f"\n## {path}\n\n```\n{usage}\n```\n\n{command.help}\n"
    rows = [_row(param) for param in [*arguments, *options] if getattr(param, "help", None) or param in options]
    if rows:
        text += "\n| option | | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    return [text]


def _is_shown(option: Any) -> bool:
    return option.name != "help" and not option.hidden


def _row(param: Any) -> str:
    if param.param_type_name == "argument":
        names = param.metavar or param.name
    else:
        names = ", ".join(f"`{name}`" for name in [*param.opts, *param.secondary_opts])
    default = param.default
    # A flag that is off, an empty list and None are what one expects of an option that is not given.
    shown = f"`{getattr(default, 'value', default)}`" if default not in (None, False, (), []) else ""
    said = (param.help or "").replace("|", r"\|")
    return f"| {names} | {said} | {shown} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
