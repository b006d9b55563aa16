"""What the pipeline raises on purpose."""

from __future__ import annotations


class PipelineError(Exception):
    """Something a person can put right; the message is one line that says what."""
