"""examples/halfmoon-allocator-weighted: pip installs it, the broker takes it, and Kafka's consumers get by it what they
are to have."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_filter_jsonpath import ROOT, Environment, _pip, halfmoon, run, serving

EXAMPLE = ROOT / "examples/halfmoon-allocator-weighted"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The environment of a process in which the example is installed, and Halfmoon is this checkout."""
    leftovers = shutil.ignore_patterns("__pycache__", ".*", "build", "*.egg-info")
    copy = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("example") / EXAMPLE.name, ignore=leftovers)
    packages = tmp_path_factory.mktemp("site-packages")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    _pip([*install, "--target", str(packages), "--no-deps", str(copy)])
    path = [str(packages), str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def marked(file: str) -> list[str]:
    """README's blocks that are marked as parts of this file."""
    return re.findall(rf"^<!-- from: {re.escape(file)} -->\n```\w+\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_its_own_tests_pass(installed: Environment, tmp_path: Path) -> None:
    tests = str(EXAMPLE / "tests")
    done = run(installed, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tests, tests)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed in ", done.stdout, re.MULTILINE), done.stdout


def test_a_group_is_shared_out_by_it(installed: Environment, tmp_path: Path) -> None:
    (tmp_path / "broker.yaml").write_text(marked("broker.yaml")[0])
    with serving(installed, tmp_path) as address:
        environment = {**installed, "HALFMOON_BOOTSTRAP_SERVER": address}
        halfmoon(environment, tmp_path, "topic", "create", "orders", "-p", "8")
        command = [sys.executable, str(EXAMPLE / "tests/consumer.py"), address]
        consumers = [
            subprocess.Popen([*command, name, "orders"], env=installed, text=True, stdout=subprocess.PIPE)
            for name in ("big-1", "small-1")
        ]
        try:
            for consumer, share in zip(consumers, ("6", "2"), strict=True):
                assert consumer.stdout is not None
                assert share in map(str.strip, consumer.stdout), "it ends before it has its share"
        finally:
            for consumer in consumers:
                consumer.kill()
                consumer.communicate()


def test_readme_shows_what_stands_in_the_files() -> None:
    files = set(re.findall(r"<!-- from: (.*?) -->", README)) - {"broker.yaml"}
    for file in files:
        content = (EXAMPLE / file).read_text(encoding="utf-8")
        assert [block for block in marked(file) if block not in content] == []
    assert re.findall(r"(?<!-->\n)```(?:python|toml|yaml)\n.*", README) == []


def test_the_licence_is_the_projects() -> None:
    assert (EXAMPLE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
