r"""Bytes that stand in every JSON text in which a certain text stands, so that most others need not be read.

JSON lets a text be written in many ways: `"sku"` may as well stand there as `"\u0073ku"`. But one that is not written
as it reads has a backslash in it. So a value without the text, and without such a backslash, does not have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PLAIN = re.compile(r"[ !#-.0-\[\]-~]*")
r"""Printable ASCII without `"`, `/` and `\`: the only other way to write these characters is `\u0020` to `\u007e`."""


def json_needle(texts: Iterable[str]) -> bytes:
    """A pattern that occurs wherever one of these texts stands, as a name or as a value."""
    wanted = sorted(set(texts))
    escape = rb"\\u00[2-7]" if all(map(_PLAIN.fullmatch, wanted)) else rb"\\"
    # Without the quote in front, as a search that looks up at every quote of a JSON text takes twice the time.
    written = [re.escape(text.encode("utf-8", "surrogatepass")) + b'"' for text in wanted]
    return b"|".join([*written, escape])
