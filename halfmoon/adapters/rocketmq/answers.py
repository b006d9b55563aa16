"""What a request is answered with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.faults import code_of
from halfmoon.errors import BrokerError
from halfmoon.remoting.codes import Code

NO_FIELDS: Mapping[str, str] = {}


class Answer(NamedTuple):
    """`body`: bytes, or pieces that are sent one behind the other."""

    code: int = Code.SUCCESS
    fields: Mapping[str, str] = NO_FIELDS
    remark: str | None = None
    body: bytes | Sequence[bytes | memoryview] = b""


DONE: Final = Answer()


def refusal(error: Refused | BrokerError) -> Answer:
    if isinstance(error, Refused):
        return Answer(error.code, remark=error.remark)
    return Answer(code_of(error.fault), remark=error.message)
