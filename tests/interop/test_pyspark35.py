"""The pipeline on PySpark 3.5, by this project's own tests with Spark, in an environment made for it.

`make interop` runs it. The environment is kept in ~/.cache/halfmoon-interop (or XDG_CACHE_HOME) and made anew when what
goes into it changes. Everything in it is as in constraints.txt except PySpark.
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
PYSPARK = "3.5.7"
"""Not whatever is newest: the connector of the same version has to be there as well, and PyPI has been ahead."""

LEFT_OUT = {
    "tests/spark/test_datasource.py": "data sources in Python are new in Spark 4.0",
    "tests/spark/test_archive.py::test_what_was_written_is_counted_before_anything_is_removed": (
        "replaces a method of a class that Spark 3.5 has under another name"
    ),
    "tests/spark/test_audit.py::test_missing_headers_are_no_headers": "writes SELECT * EXCEPT, new in Spark 4.0",
    "tests/spark/test_ingest.py::test_a_stream_that_fails_says_why_in_one_line": (
        "divides by zero, which is a null where spark.sql.ansi.enabled is not the default yet"
    ),
}
"""What cannot pass, and why. tests/spark/test_connect.py skips itself."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="PySpark 3.5 imports distutils, which Python 3.12 dropped"),
]


def requirements() -> list[str]:
    """What the project and its tests need, from pyproject.toml; the project itself runs from the source tree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [*project["dependencies"], *extras["spark"], *extras["dev"], f"pyspark=={PYSPARK}"]


def constraints() -> str:
    """constraints.txt without PySpark's own lines."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith(("pyspark==", "py4j==")))


def environment_for_tests() -> Path:
    """The Python of the environment, which is made if it is not there as it should be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "halfmoon-interop"
    place = cache / f"pyspark-{PYSPARK}"
    wanted = "\n".join([sys.version, *requirements(), constraints()])
    stamp = place / "installed.txt"
    python = place / "bin" / "python"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    (place / "constraints.txt").write_text(constraints())
    install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(place / "constraints.txt")]
    subprocess.run([*install, *requirements()], check=True)
    stamp.write_text(wanted)
    return python


@pytest.mark.timeout(1_800)
def test_our_tests_with_spark() -> None:
    python = environment_for_tests()
    hidden = ("SPARK_", "PYSPARK_", "PYTHON", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = [str(python), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/pipeline", "tests/spark"]
    command += [f"--{'deselect' if '::' in name else 'ignore'}={name}" for name in LEFT_OUT]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    print(done.stdout[-5_000:])
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 40
