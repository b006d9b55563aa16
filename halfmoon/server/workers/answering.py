"""How a shard answers what others ask it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halfmoon.errors import BrokerError

if TYPE_CHECKING:
    from halfmoon.cluster.asking import Answerer, Told
    from halfmoon.cluster.messages import Question
    from halfmoon.core.kernel import Kernel


def once_durable(kernel: Kernel, make: Callable[[Any], tuple[object, int]]) -> Answerer:
    """Answers with what `make` makes of the question, once the log is durable up to the position that comes with it.
    `make` raises BrokerError."""

    def answer(question: Question, told: Told) -> None:
        try:
            made, position = make(question)
        except BrokerError as error:
            told(error)
        else:
            kernel.when_durable(position, lambda error: told(made if error is None else error))

    return answer
