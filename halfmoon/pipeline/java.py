"""Which Java a pyspark needs, and whether the one that Spark would start is it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from halfmoon.pipeline.errors import PipelineError

JAVA_NEEDED = {3: 8, 4: 17}
"""Oldest Java by Spark's major version (Spark's own documentation, "Downloading")."""


def parse_java_version(text: str) -> int | None:
    """The major version in what `java -version` prints: 17 for "17.0.15", 8 for "1.8.0_412"; None if there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def check_java(pyspark_version: str) -> None:
    """Raise PipelineError with what to install, unless a Java that Spark can run on is found where Spark looks."""
    needed = JAVA_NEEDED.get(int(pyspark_version.split(".")[0]), max(JAVA_NEEDED.values()))
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    try:
        found = subprocess.run([java or "java", "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        where = f"JAVA_HOME={home}" if home else "the PATH"
        raise PipelineError(f"no Java in {where}: pyspark {pyspark_version} needs Java {needed} or newer") from None
    version = parse_java_version(found.stderr)
    if version is not None and version < needed:
        raise PipelineError(f"Java {version} is too old: pyspark {pyspark_version} needs Java {needed} or newer")
