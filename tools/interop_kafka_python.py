"""Run kafka-python's own integration tests, from its source distribution, against a running broker.

    python tools/interop_kafka_python.py HOST:PORT [-k EXPRESSION] [--cache DIR]

The source distribution of the installed version is downloaded with pip and unpacked below the cache directory, once.
`test/service.py`, with which its tests start a Kafka, is not part of the distribution; a stand-in is written, since the
broker is there already. Its tests of TLS and SASL want brokers that they have set up themselves:
`interop_kafka_python_secured.py` gives them Halfmoon.

Prints the tests that failed, then `N passed, N failed, N skipped`. Exit code 0: exactly the tests of the list EXPECTED
(in docs/compatibility.md with the reasons) failed; anything else, also one of them that passes, is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

EXPECTED: frozenset[str] = frozenset()
"""What fails here, and has to: nothing. Against Apache Kafka 4.3.1 without an authorizer, the test of ACLs does."""

CLAIMED = "4.3"
"""The Kafka release that kafka-python infers from what ApiVersions offers; one of its tests compares them."""

SECURED = ("test_ssl_integration.py", "test_sasl_integration.py")
TEST_TIMEOUT_S = 40
NO_TESTS = 5
"""pytest's code where none is selected."""
ROOT = Path(__file__).parents[1]

SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    def __init__(self, *arguments, **settings):
        raise RuntimeError("these tests run against a broker that is there already")
"""


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    tests = prepare(options.cache)
    outcomes = run(tests, options.server, options.k)
    failed = sorted(name for name, outcome in outcomes.items() if outcome == "failed")
    for name in failed:
        print(f"failed{' as expected' if name in EXPECTED else ''}: {name}")
    unexpected = {name for name in outcomes if (outcomes[name] == "failed") != (name in EXPECTED)}
    if options.k is None:
        unexpected |= EXPECTED - outcomes.keys()
    for name in sorted(unexpected - set(failed)):
        print(f"not failed, though expected to: {name}")
    counts = {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if unexpected or not counts["passed"] else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", metavar="HOST:PORT")
    parser.add_argument("-k", metavar="EXPRESSION", help="run only the tests that match, as in pytest")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "halfmoon-interop"
    parser.add_argument("--cache", metavar="DIR", type=Path, default=cache, help="default: %(default)s")
    return parser.parse_args(arguments)


def prepare(cache: Path) -> Path:
    """Download and unpack what is not there yet; returns the directory in which the tests stand."""
    release = version("kafka-python")
    root = cache / f"kafka-python-{release}"
    tests = root / f"kafka_python-{release}"
    if (tests / "test" / "service.py").exists():
        return tests
    root.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "kafka-python"]
    subprocess.run([*pip, "--dest", str(root), f"kafka-python=={release}"], check=True)
    (archive,) = root.glob("kafka_python-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(root, filter="data")
    (tests / "test" / "__init__.py").touch()
    (tests / "test" / "service.py").write_text(SERVICE, encoding="utf-8")
    return tests


def run(tests: Path, server: str, expression: str | None) -> dict[str, str]:
    """The outcome of each test: passed, failed or skipped. Raises CalledProcessError if pytest itself gave up."""
    (tests / "no-kafka-here" / "libs").mkdir(parents=True, exist_ok=True)
    # Their settings, not those of whoever runs this: an empty file keeps pytest from looking further up.
    (tests / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    selected = ["-k", expression] if expression else []
    left_out = [f"--ignore=test/integration/{name}" for name in SECURED]
    outcomes = _pytest(tests, ["test/integration", *left_out, *selected], {"KAFKA_URI": f"kafka://{server}"})
    own = ["-p", "tools.interop_kafka_python_secured"]
    return outcomes | _pytest(tests, [*own, *(f"test/integration/{name}" for name in SECURED), *selected], {})


def _pytest(tests: Path, arguments: list[str], environment: dict[str, str]) -> dict[str, str]:
    report = tests / "report.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "--tb=short", "--show-capture=no", "-c", "pytest.ini", "-p", "no:cacheprovider"]
    options += ["-p", "no:halfmoon", "--timeout", str(TEST_TIMEOUT_S), f"--junit-xml={report.name}"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    environment = {
        **os.environ,
        **environment,
        "KAFKA_ROOT": str(tests / "no-kafka-here"),
        "KAFKA_VERSION": CLAIMED,
        # Before their own `kafka` would come the one next to the tests; both are the same release.
        "PYTHONPATH": os.pathsep.join((str(tests), str(ROOT))),
    }
    done = subprocess.run(command, cwd=tests, env=environment, stdout=sys.stderr, check=False)
    if done.returncode not in (0, 1, NO_TESTS):
        raise subprocess.CalledProcessError(done.returncode, command)
    return {case.attrib["name"]: _outcome(case) for case in ET.parse(report).iter("testcase")}


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
