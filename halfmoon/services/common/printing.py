"""Names as one harmless line: clients choose them freely.

A line break in a name would forge an entry of a log, an escape sequence would act on whoever reads it in a terminal,
and 32 KB of `x` would fill the disk.
"""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def printable(text: str, longest: int) -> str:
    """`text` without what does not print, which becomes escapes, and cut as `cut` does."""
    if len(text) <= longest and text.isprintable():  # as most are, and quickly seen
        return text
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), cut(text, longest))


def cut(text: str, longest: int) -> str:
    """At most so many characters, and a few that say what was cut."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
