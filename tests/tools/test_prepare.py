"""tools/prepare.sh on machines that lack something: one clear line, and nothing made or downloaded before it."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("sh", "dirname", "sed", "head", "cat", "cksum")
"""What every machine has; the rest of the path is hidden from the script."""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A checkout with the script only, and a `bin` that is its whole path."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/prepare.sh", tmp_path / "tools")
    loops = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["halfmoon"]["loops"]
    for name in ("pyproject.toml", "constraints.txt", "setup.py", *loops):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "bin").mkdir()
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def put(machine: Path, name: str, script: str) -> None:
    program = machine / "bin" / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def refusal(machine: Path, *flags: str, **environment: str) -> str:
    done = subprocess.run(
        [str(machine / "bin/sh"), str(machine / "tools/prepare.sh"), *flags],
        env={"PATH": str(machine / "bin"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert not (machine / ".venv").exists()
    return done.stderr.strip()


GOOD_PYTHON = "exit 0"
OLD_PYTHON = 'case "$2" in *version_info*) exit 2 ;; *) echo 3.9.2 ;; esac'
BARE_PYTHON = "exit 3"


def java(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


def test_no_python(machine: Path) -> None:
    assert refusal(machine) == (
        "halfmoon: Python 3.11 or newer is needed and none was found: install python3.11, "
        "or name one with make PYTHON=/path/to/python3.11"
    )


def test_an_old_python(machine: Path) -> None:
    put(machine, "python3", OLD_PYTHON)
    assert "is needed, python3 is 3.9.2: install python3.11" in refusal(machine)


def test_a_python_that_cannot_make_environments(machine: Path) -> None:
    put(machine, "python3", BARE_PYTHON)
    assert "python3 cannot make virtual environments" in refusal(machine)


def test_no_java_is_said_only_where_java_is_needed(machine: Path) -> None:
    put(machine, "python3", GOOD_PYTHON)
    assert "Java 17 is needed for Spark and java was not found: install a Java 17 runtime" in refusal(machine, "--java")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16"])
def test_an_old_java(machine: Path, version: str) -> None:
    put(machine, "python3", GOOD_PYTHON)
    put(machine, "java", java(version))
    assert f"java is {version}, which is too old" in refusal(machine, "--java")


def test_a_java_that_spark_does_not_run_on(machine: Path) -> None:
    put(machine, "python3", GOOD_PYTHON)
    put(machine, "java", java("25"))
    assert "java is 25, which Spark 4.0 does not run on" in refusal(machine, "--java")


def test_java_home_counts_as_it_does_for_spark(machine: Path) -> None:
    put(machine, "python3", GOOD_PYTHON)
    put(machine, "java", java("17.0.15"))
    assert "/elsewhere/bin/java was not found" in refusal(machine, "--java", JAVA_HOME="/elsewhere")


def test_a_good_machine_gets_past_the_checks(machine: Path) -> None:
    # The stand-in for Python makes no environment, so it ends where the real work would begin.
    put(machine, "python3", 'case "$1" in --version) echo Python 3.11.7 ;; -m) exit 1 ;; esac')
    put(machine, "java", java("17.0.15"))
    (machine / "bin/rm").symlink_to(shutil.which("rm") or "")
    done = subprocess.run(
        [str(machine / "bin/sh"), str(machine / "tools/prepare.sh"), "--java"],
        env={"PATH": str(machine / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "halfmoon: installing into .venv with Python 3.11.7\n"
    assert done.stderr == "halfmoon: python3 could not make .venv\n"
