"""`halfmoon plugin new`: what it writes works, for every hook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from halfmoon.cli.plugin_templates import HOOKS as TEMPLATES
from halfmoon.hooks.checks import HOOKS
from tests.cli.conftest import CommandLine
from tests.hooks.installed import ROOT, Node, install, wheel


def test_there_is_a_template_for_every_hook() -> None:
    assert list(TEMPLATES) == list(HOOKS)


@pytest.mark.timeout(200)
def test_the_tests_of_each_pass(cli: CommandLine, tmp_path: Path) -> None:
    folders = []
    for hook in HOOKS:
        name = "new-" + hook.removeprefix("halfmoon_").replace("_", "-")
        said = cli.ok("plugin", "new", name, "--hook", hook, "--directory", str(tmp_path)).out
        assert hook in said
        folders.append(tmp_path / name)
    path = os.pathsep.join([str(ROOT), *map(str, folders)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", *(f"{each}/tests" for each in folders)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{2 * len(HOOKS)} passed" in done.stdout


@pytest.mark.timeout(120)
def test_one_is_installed_by_pip_and_taken_by_a_broker(cli: CommandLine, tmp_path: Path) -> None:
    cli.ok("plugin", "new", "my-commands", "--hook", "commands", "--directory", str(tmp_path))
    source = tmp_path / "my-commands"
    project = (source / "pyproject.toml").read_text()
    assert '[project.entry-points.halfmoon]\nmy_commands = "my_commands"\n' in project
    modules = {"my_commands/__init__.py": (source / "my_commands/__init__.py").read_bytes()}
    made = wheel(tmp_path, "my_commands", modules, "[halfmoon]\nmy_commands = my_commands\n")
    node = Node(tmp_path, install(tmp_path, made), {"plugins": {"my_commands": {}}})
    node.start()
    try:
        assert node.halfmoon("greet", "Ann").stdout == "hello, Ann\n"
    finally:
        node.end()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["My Plugin"], "expected lower-case letters"),
        (["mine", "--hook", "dispach"], "there is no hook dispach; there are halfmoon_config"),
    ],
)
def test_what_is_refused(cli: CommandLine, tmp_path: Path, arguments: list[str], message: str) -> None:
    outcome = cli("plugin", "new", *arguments, "--directory", str(tmp_path))
    assert outcome.code == 2
    assert message in outcome.err


def test_nothing_is_overwritten(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    outcome = cli("plugin", "new", "mine", "--directory", str(tmp_path))
    assert outcome.code == 1
    assert "mine exists" in outcome.err
