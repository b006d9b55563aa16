"""Run librdkafka's own test suite against a running broker.

    python tools/interop_librdkafka.py HOST:PORT [TEST…] [--scenario S] [--group-protocol P] [--kafka-path DIR] [-Q]

The sources come with an npm package of Confluent's, which brings the library that it binds, tests and all. They are
downloaded, unpacked and compiled below the cache directory, once; that takes npm, a C and C++ compiler, make, and the
headers of OpenSSL, curl, zlib, zstd and RapidJSON. TEST is a number, such as 0081. `--kafka-path` is a folder whose
`bin` has kafka-topics.sh and kafka-acls.sh, which some tests call; without it they fail.

Prints the tests that failed, then `N passed, N failed, N skipped`. Exit code 0: none failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE, RELEASE = "@confluentinc/kafka-javascript", "1.10.1"
LIBRDKAFKA = "2.15.1"
"""What is in it."""
CLAIMED = "4.3.1"
"""The version of Kafka that tests choose by what they ask for."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "halfmoon-interop"

PARALLEL = 5
"""As their own runs have it: most of the time a test waits."""
TIMEOUT_S = 3_000

BEGAN = re.compile(r"=+ Running test (\d{4}_\w+) =+")
PASSED = re.compile(r"=+ Test (\d{4}_\w+) PASSED =+")
FAILED = re.compile(r'^### Test "(\d{4}_\w+).* failed at .*\n(.*)', re.MULTILINE)
SKIPPED = re.compile(r"^\[(\d{4}_\w+) *\/.*SKIPPING TEST: ([^\[\n]*)", re.MULTILINE)
TOOK = re.compile(r" (\d{4}_\w+): duration ([\d.]+)ms")
"""What they print of each test. The table at the end is not there if one has failed and left threads behind."""
COLOURS = re.compile(r"\x1b\[\d*m")
NOT_ASKED_FOR = ("Filtered due to", "included in TESTS_SKIP", "not applicable")


@dataclass(frozen=True)
class Outcome:
    kind: str
    """passed, failed, skipped"""
    why: str
    took_s: float


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    tests = prepare(options.cache)
    configuration = {"bootstrap.servers": options.server}
    environment = {"KAFKA_PATH": str(options.kafka_path.resolve())} if options.kafka_path else {}
    found = run(
        tests, configuration, options.tests, scenario=options.scenario, group_protocol=options.group_protocol,
        quick=options.Q, environment=environment,
    )  # fmt: skip
    for name, outcome in sorted(found.items()):
        if outcome.kind == "failed":
            print(f"failed: {name}: {outcome.why}")
    print(said(found))
    kinds = {outcome.kind for outcome in found.values()}
    return 1 if "failed" in kinds or "passed" not in kinds else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", metavar="HOST:PORT")
    parser.add_argument("tests", metavar="TEST", nargs="*", help="default: all that need a broker")
    parser.add_argument("--scenario", default="default", help="noautocreate: the broker creates no topics by itself")
    parser.add_argument("--group-protocol", default="classic", help="consumer: KIP-848's, where tests know it")
    parser.add_argument("--kafka-path", metavar="DIR", type=Path)
    parser.add_argument("--cache", metavar="DIR", type=Path, default=CACHE, help="default: %(default)s")
    parser.add_argument("-Q", action="store_true", help="quick: less data")
    return parser.parse_args(arguments)


def prepare(cache: Path = CACHE) -> Path:
    """The folder with the program test-runner and what it reads. Downloads and compiles what is not there yet."""
    root = cache / f"librdkafka-{LIBRDKAFKA}"
    if not root.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = cache / f"{root.name}.{os.getpid()}"
        unfinished.mkdir()
        try:
            pack = ["npm", "pack", "--silent", f"{PACKAGE}@{RELEASE}"]
            subprocess.run(pack, cwd=unfinished, check=True, stdout=sys.stderr)
            (archive,) = unfinished.glob("*.tgz")
            with tarfile.open(archive) as packed:
                packed.extractall(unfinished, filter="data")
            source = unfinished / "package" / "deps" / "librdkafka"
            _for_one_node(source / "tests" / "test.c")
            for command in (
                ["bash", "./configure", "--disable-gssapi"],
                ["make", f"-j{os.cpu_count()}", "libs"],
                ["make", f"-j{os.cpu_count()}", "-C", "tests", "test-runner"],
            ):
                subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
            if not root.exists():  # another may have been quicker
                source.rename(root)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return root / "tests"


def _for_one_node(harness: Path) -> None:
    """Their topics have three replicas, as their cluster has three nodes."""
    text = harness.read_text()
    asks, instead = (
        "NewTopic_new(topicname, partition_cnt, replication_factor,",
        "NewTopic_new(topicname, partition_cnt, 1,",
    )
    if text.count(asks) != 1:
        raise RuntimeError("librdkafka's tests create topics otherwise than they did")
    harness.write_text(text.replace(asks, instead))


def run(
    tests: Path,
    configuration: Mapping[str, str],
    names: Iterable[str] = (),
    *,
    left_out: Iterable[str] = (),
    scenario: str = "default",
    group_protocol: str = "classic",
    quick: bool = False,
    parallel: int = PARALLEL,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> dict[str, Outcome]:
    """The outcome of each test that began.

    `configuration`: of librdkafka, for every client. `names`, `left_out`: numbers of tests. `environment`: what single
    tests ask for. `log`: where what they say goes, else into a file beside them. Raises TimeoutExpired."""
    file = tests / f"test.{os.getpid()}.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in configuration.items()))
    command = ["./test-runner", "-L", "-K", f"-p{parallel}", "-s", scenario, *(["-Q"] if quick else [])]
    asked = {
        **os.environ,
        "LD_LIBRARY_PATH": "../src:../src-cpp", "RDKAFKA_TEST_CONF": str(file), "TEST_KAFKA_VERSION": CLAIMED,
        "TEST_CONSUMER_GROUP_PROTOCOL": group_protocol, "BROKERS": configuration["bootstrap.servers"],
        **(environment or {}),
    }  # fmt: skip
    for name, listed in {"TESTS": ",".join(names), "TESTS_SKIP": ",".join(left_out)}.items():
        if listed:
            asked[name] = listed
    log = log or tests / "test-runner.log"
    try:
        with log.open("wb") as out:
            subprocess.run(
                command, cwd=tests, env=asked, stdout=out, stderr=subprocess.STDOUT, check=False, timeout=TIMEOUT_S
            )
    finally:
        file.unlink()
    return outcomes(log.read_text(errors="replace"))


def outcomes(printed: str) -> dict[str, Outcome]:
    printed = COLOURS.sub("", printed)
    took_s = {name: float(ms) / 1000 for name, ms in TOOK.findall(printed)}
    why = dict.fromkeys(BEGAN.findall(printed), "it did not end")
    found = {name: Outcome("failed", said, took_s.get(name, 0)) for name, said in why.items()}
    found |= {name: Outcome("passed", "", took_s.get(name, 0)) for name in PASSED.findall(printed)}
    skipped = [(name, said) for name, said in SKIPPED.findall(printed) if not said.startswith(NOT_ASKED_FOR)]
    found |= {name: Outcome("skipped", said.strip(), 0) for name, said in skipped}
    return found | {name: Outcome("failed", said, took_s.get(name, 0)) for name, said in FAILED.findall(printed)}


def said(found: Mapping[str, Outcome]) -> str:
    kinds = [outcome.kind for outcome in found.values()]
    return ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("passed", "failed", "skipped"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
