"""What is wrong with a request."""

from __future__ import annotations

from halfmoon.errors import HalfmoonError
from halfmoon.remoting.codes import Code


class Refused(HalfmoonError):  # noqa: N818 (an answer, not a failure)
    """A request that is answered with a code other than SUCCESS, and a remark for people."""

    def __init__(self, code: Code, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
