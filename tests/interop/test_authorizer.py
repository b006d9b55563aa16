"""Kafka's StandardAuthorizer and ours decide alike; its answers are kept for the tests that need no Java."""

from __future__ import annotations

import lzma
import os
import subprocess
from pathlib import Path

import pytest

from tests.interop.java_programs import jars, source
from tests.services.authorization.questions import ASKED, RuleSet, rule_sets
from tests.services.authorization.test_kafka_answers import STORED

SETS = 10_000
KEPT = 300


def kafkas_answers(sets: list[RuleSet], folder: Path) -> list[str]:
    questions = folder / "questions"
    with questions.open("w") as file:
        for what, values in ASKED.items():
            print(what, *values, sep="\t", file=file)
        for each in sets:
            print(*each.lines(), sep="\n", file=file)
    done = subprocess.run(
        ["java", "-Xmx512m", "-cp", f"{jars('kafka')}/*", source("kafka", "Authorizing.java"), str(questions)],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_ours_decides_as_kafkas(tmp_path: Path) -> None:
    sets = list(rule_sets(int(os.environ.get("HALFMOON_TEST_SEED", "1")), SETS))
    answers = kafkas_answers(sets, tmp_path)
    assert len(answers) == SETS
    different = [each for each, answer in zip(sets, answers, strict=True) if each.answers() != answer]
    assert not different, f"{len(different)} sets, such as {min(different, key=lambda each: len(each.rules))}"


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_the_stored_answers_are_kafkas(tmp_path: Path) -> None:
    """HALFMOON_TEST_WRITE=1 writes them."""
    sets = list(rule_sets(0, KEPT))
    lines = [[*each.lines(), answer] for each, answer in zip(sets, kafkas_answers(sets, tmp_path), strict=True)]
    text = "\n".join(line for each in lines for line in each) + "\n"
    if os.environ.get("HALFMOON_TEST_WRITE"):
        STORED.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    assert lzma.decompress(STORED.read_bytes()).decode() == text
