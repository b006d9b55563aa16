"""examples/halfmoon-filter-jsonpath: pip installs it, the broker takes it, its README shows what stands in its files.

The fixture `installed_jsonpath` is for every test that needs it installed. It needs pip and a package index, like
`make test` itself when it makes .venv; without one the tests fail with what pip says.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/halfmoon-filter-jsonpath"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]

pytestmark = pytest.mark.timeout(300)

Environment = dict[str, str]
"""Of a process."""


# ----------------------------------------------------------------------------------------------------- the installation


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example: building a package leaves files behind."""
    leftovers = shutil.ignore_patterns("__pycache__", ".*", "build", "*.egg-info")
    return shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("example") / EXAMPLE.name, ignore=leftovers)


@pytest.fixture(scope="module")
def installed_jsonpath(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment of a process in which the example is installed, and Halfmoon is this checkout."""
    packages = tmp_path_factory.mktemp("site-packages")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    install += ["--target", str(packages)]
    # In two steps: with its dependencies, pip would fetch a Halfmoon from the index as well.
    _pip([*install, "--no-deps", str(example)])
    libraries = [requirement for requirement in PROJECT["dependencies"] if not requirement.startswith("halfmoon")]
    _pip([*install, "--constraint", str(ROOT / "constraints.txt"), *libraries])
    path = [str(packages), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _pip(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"{' '.join(command[1:])}\n{done.stdout}{done.stderr}", pytrace=False)


def run(environment: Environment, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """`python COMMAND…` in that folder."""
    return subprocess.run([sys.executable, *command], env=environment, cwd=folder, capture_output=True, text=True)


def halfmoon(environment: Environment, folder: Path, *arguments: str) -> Any:
    """What `halfmoon ARGUMENT… -o json` says."""
    done = run(environment, folder, "-m", "halfmoon", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plugin_row(environment: Environment, folder: Path, *arguments: str) -> dict[str, str]:
    """What `halfmoon plugins` says of the example."""
    (row,) = [row for row in halfmoon(environment, folder, "plugins", *arguments) if row["name"] == "jsonpath"]
    return row


# ------------------------------------------------------------------------------------------------------------ the tests


def test_its_own_tests_pass(installed_jsonpath: Environment, example: Path, tmp_path: Path) -> None:
    # Not in the example's folder, where Python would find the package even if it were not installed.
    done = run(installed_jsonpath, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(example / "tests"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed in ", done.stdout, re.MULTILINE), done.stdout


def test_it_is_off_until_broker_yaml_names_it(installed_jsonpath: Environment, tmp_path: Path) -> None:
    origin = f"{PROJECT['name']} {PROJECT['version']}"
    off = {"name": "jsonpath", "state": "off", "kind": "package", "origin": origin}
    assert plugin_row(installed_jsonpath, tmp_path) == off
    (tmp_path / "broker.yaml").write_text("plugins: {jsonpath: {}}\n")
    assert plugin_row(installed_jsonpath, tmp_path, "--config", "broker.yaml") == {**off, "state": "on"}


def test_a_view_is_filled_by_it(installed_jsonpath: Environment, tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text(marked("broker.yaml")[0])
    views = yaml.safe_load(marked("broker.yaml")[0])["views"]
    (name, view), *_ = views.items()
    with serving(installed_jsonpath, tmp_path) as address:
        environment = {**installed_jsonpath, "HALFMOON_BOOTSTRAP_SERVER": address}
        halfmoon(environment, tmp_path, "topic", "create", view["source"], "-p", "1")
        orders = [{"id": number, "items": [{"price": price}]} for number, price in enumerate((99, 101, 5, 1000))]
        values = [json.dumps(order) for order in orders]
        sent = run(environment, tmp_path, "-m", "halfmoon", "produce", view["source"], *values, "no JSON")
        assert sent.returncode == 0, sent.stderr
        found = run(environment, tmp_path, "-m", "halfmoon", "consume", name, "--count", "2", "--format", "%s%n")
        assert found.returncode == 0, found.stderr
        assert [json.loads(line)["id"] for line in found.stdout.splitlines()] == [1, 3]


@contextmanager
def serving(environment: Environment, folder: Path) -> Iterator[str]:
    """`halfmoon serve` with the broker.yaml in that folder; its address."""
    command = [sys.executable, "-m", "halfmoon", "serve", "--config", "broker.yaml", "--kafka", "127.0.0.1:0"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--data-dir", "data"], env=environment, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=log
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ready "), (folder / "log").read_text()
        yield line.split("kafka=")[1].split()[0]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_readme_shows_the_lines_of_halfmoon_plugins(installed_jsonpath: Environment, tmp_path: Path) -> None:
    shown = re.findall(r"^halfmoon plugins .*?# (.*)$", README, re.MULTILINE)
    row = plugin_row(installed_jsonpath, tmp_path)
    assert [line.split() for line in shown] == [
        [row["name"], state, row["kind"], *row["origin"].split()] for state in ("off", "on")
    ]


def test_config_check_accepts_what_readme_shows(installed_jsonpath: Environment, tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text(marked("broker.yaml")[0])
    assert halfmoon(installed_jsonpath, tmp_path, "config", "check", "broker.yaml")["valid"]


def test_config_check_names_a_wrong_setting_as_readme_says(installed_jsonpath: Environment, tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text("plugins: {jsonpath: {max_expression: 0}}\n")
    done = run(installed_jsonpath, tmp_path, "-m", "halfmoon", "config", "check", "broker.yaml")
    problem = "$.plugins.jsonpath.max_expression: got 0, expected at least 1 character"
    assert (done.returncode, done.stderr) == (1, f"halfmoon: {problem}\n")
    assert problem in " ".join(README.split())


def test_the_queries_in_readme_are_accepted(installed_jsonpath: Environment, tmp_path: Path) -> None:
    queries = {view["jsonpath"] for view in yaml.safe_load(marked("broker.yaml")[0])["views"].values()}
    queries |= set(re.findall(r"^\| `(\$[^`]*)` \|", README, re.MULTILINE))
    queries |= set(re.findall(r"halfmoon\.view\.jsonpath=([^']*)'", README))
    assert len(queries) > 4
    script = (
        "import sys; from halfmoon.plugin import PluginContext; import halfmoon_filter_jsonpath as plugin\n"
        "compile = plugin.halfmoon_filters(PluginContext('jsonpath', plugin.Settings()))['jsonpath']\n"
        "for query in sys.argv[1:]: compile(query)\n"
    )
    done = run(installed_jsonpath, tmp_path, "-c", script, *queries)
    assert done.returncode == 0, done.stderr


def marked(file: str) -> list[str]:
    """README's blocks that are marked as parts of this file."""
    return re.findall(rf"^<!-- from: {re.escape(file)} -->\n```\w+\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("file", sorted(set(re.findall(r"<!-- from: (.*?) -->", README)) - {"broker.yaml"}))
def test_readme_shows_what_stands_in_the_files(file: str) -> None:
    blocks = marked(file)
    assert blocks, f"README shows nothing of {file}"
    content = (EXAMPLE / file).read_text(encoding="utf-8")
    assert [block for block in blocks if block not in content] == []


def test_every_block_of_code_in_readme_is_marked() -> None:
    assert re.findall(r"(?<!-->\n)```(?:python|toml|yaml)\n.*", README) == []


def test_readme_names_every_setting_with_its_default(installed_jsonpath: Environment, tmp_path: Path) -> None:
    script = (
        "import halfmoon_filter_jsonpath as plugin, msgspec; print(msgspec.json.encode(plugin.Settings()).decode())"
    )
    defaults = json.loads(run(installed_jsonpath, tmp_path, "-c", script).stdout)
    shown = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", README, re.MULTILINE))
    assert shown == {"max_expression": str(defaults["max_expression"]), "max_value_bytes": "64KiB"}
    assert defaults["max_value_bytes"] == 64 << 10


def test_the_licence_is_the_projects() -> None:
    assert (EXAMPLE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
