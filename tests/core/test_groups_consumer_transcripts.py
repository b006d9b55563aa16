"""Runs the transcripts of `transcripts/consumer_*.txt`: a command, `----`, and exactly what the coordinator said. The
commands are listed in consumer_script.

    HALFMOON_REWRITE=1 pytest tests/core/test_groups_consumer_transcripts.py     writes what it says now; read the diff
"""

from __future__ import annotations

import logging
from pathlib import Path

from tests.core.consumer_script import Script
from tests.core.transcript import check, transcripts


@transcripts("consumer")
def test_transcript(path: Path) -> None:
    logging.getLogger("halfmoon.core.groups.consumer.targets").setLevel(logging.CRITICAL)
    check(path, Script().run)
