"""The pipeline on other PySparks, by this project's own tests with Spark, in environments made for them.

`make interop` runs it. The environments are kept in ~/.cache/halfmoon-interop (or XDG_CACHE_HOME) and made anew when
what goes into them changes. Everything in them is as in constraints.txt except PySpark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLDEST = "3.5.7"
"""Not whatever is newest of it: the connector of the same version has to be there as well, and PyPI has been ahead."""
NEXT = "4.1.0"
"""Not supported yet, for its connector is missing a dependency. But it is the first to offer conditions to data sources
in Python, which need no connector."""

LEFT_OUT = {
    "tests/spark/test_datasource.py": "data sources in Python are new in Spark 4.0",
    "tests/spark/test_archive.py::test_what_was_written_is_counted_before_anything_is_removed": (
        "replaces a method of a class that Spark 3.5 has under another name"
    ),
    "tests/spark/test_rocketmq.py": "RocketMQ's Java client gets its Guava from Spark, and 3.5 has one that is too old",
    "tests/spark/test_audit.py::test_missing_headers_are_no_headers": "writes SELECT * EXCEPT, new in Spark 4.0",
    "tests/spark/test_ingest.py::test_a_stream_that_fails_says_why_in_one_line": (
        "divides by zero, which is a null where spark.sql.ansi.enabled is not the default yet"
    ),
}
"""What cannot pass with the oldest, and why. tests/spark/test_connect.py skips itself."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="PySpark 3.5 imports distutils, which Python 3.12 dropped"),
]


def requirements(pyspark: str) -> list[str]:
    """What the project and its tests need, from pyproject.toml; the project itself runs from the source tree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["spark"], *extras["dev"]]
    return [*(each for each in needed if not each.startswith("pyspark")), f"pyspark=={pyspark}"]


def constraints() -> str:
    """constraints.txt without PySpark's own lines."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith(("pyspark==", "py4j==")))


def environment_with(pyspark: str) -> Path:
    """The Python of an environment, which is made if it is not there as it should be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "halfmoon-interop"
    place = cache / f"pyspark-{pyspark}"
    wanted = "\n".join([sys.version, *requirements(pyspark), constraints()])
    stamp = place / "installed.txt"
    python = place / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    (place / "constraints.txt").write_text(constraints())
    install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(place / "constraints.txt")]
    subprocess.run([*install, *requirements(pyspark)], check=True)
    stamp.write_text(wanted)
    return python


def passed(pyspark: str, *arguments: str, **environment: str) -> int:
    """How many of our tests passed with this PySpark, if none failed."""
    hidden = ("SPARK_", "PYSPARK_", "PYTHON", "VIRTUAL_ENV")
    environment |= {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = [str(environment_with(pyspark)), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    print(done.stdout[-5_000:])
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    said = re.search(r"(\d+) passed", done.stdout)
    return int(said[1]) if said else 0


@pytest.mark.timeout(1_800)
def test_the_oldest_runs_our_tests_with_spark() -> None:
    left_out = [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in LEFT_OUT]
    assert passed(OLDEST, "tests/pipeline", "tests/spark", *left_out) > 200


@pytest.mark.timeout(600)
def test_the_next_pushes_conditions_down_to_the_data_source() -> None:
    assert passed(NEXT, "tests/spark/test_datasource.py", HALFMOON_TEST_SPARK_PACKAGES="") > 30
