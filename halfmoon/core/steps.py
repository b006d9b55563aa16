"""Answers that are worked out in steps: a generator yields functions for a thread, since they read from the disk, and
is sent what they return; its own return value is the answer."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from halfmoon.core.relay import Load

AnswerT = TypeVar("AnswerT")
Steps = Generator[Load, Any, AnswerT]
