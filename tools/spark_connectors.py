"""Download Spark's connectors before the tests start: `python tools/spark_connectors.py`.

On a new machine four workers of the tests would start Spark at once, and several JVMs that fill Ivy's cache together
spoil it for each other: one finds half of a jar, or a file that another has moved away. So one JVM does it alone. Where
the jars are there it does not start.

Nothing depends on it: what cannot be downloaded is said in one line, and the exit code is 0. The tests that need it
fail and say why.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    try:
        import pyspark

        from halfmoon.pipeline.session import connector_coordinates

        if not are_there(connector_coordinates(pyspark.__version__, avro=True)):
            print("halfmoon: downloading Spark's connectors, once")
            download()
    except Exception as error:
        print(f"halfmoon: Spark's connectors are not here: {error}", file=sys.stderr)
    return 0


def are_there(coordinates: str) -> bool:
    """Whether Spark has stored the jars of `group:artifact:version,…`. It does that when all they need is there."""
    jars = [coordinate.replace(":", "_", 1).replace(":", "-") + ".jar" for coordinate in coordinates.split(",")]
    return all(any(Path.home().glob(f".ivy2*/jars/{jar}")) for jar in jars)


def download() -> None:
    """Raises PipelineError with the JVM's own reason."""
    from halfmoon.pipeline import session, stop

    stop(session("connectors", avro=True))


if __name__ == "__main__":
    sys.exit(main())
