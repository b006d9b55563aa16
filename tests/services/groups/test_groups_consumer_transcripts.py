"""Runs the transcripts of `transcripts/consumer_*.txt`: a command, `----`, and exactly what the coordinator said. The
commands are listed in consumer_script.

    HALFMOON_REWRITE=1 pytest tests/services/groups/test_groups_consumer_transcripts.py   rewrites them; read the diff
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.services.groups.consumer_script import Script
from tests.transcript import check, transcripts


@transcripts("consumer", __file__)
def test_transcript(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "halfmoon.services.groups.consumer.targets")
    check(path, Script().run)
