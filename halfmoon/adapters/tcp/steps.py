"""Working out an answer in steps, some of which read from the disk: those run in a thread, the others in the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from halfmoon.core.steps import Steps

AnswerT = TypeVar("AnswerT")
InThread = Callable[[Callable[[], object], Callable[[object, BaseException | None], None]], None]
"""in_thread(work, then): runs `work` off the loop, and then(result, error) in it."""


def run_steps(
    steps: Steps[AnswerT],
    in_thread: InThread,
    answered: Callable[[AnswerT], None],
    failed: Callable[[Exception], None],
) -> None:
    """Carry out `steps` to the end; one of the callbacks is called once, in the loop."""

    def advance(value: Any) -> None:
        try:
            load = steps.send(value)
        except StopIteration as done:
            answered(done.value)
        except Exception as error:
            failed(error)
        else:
            in_thread(load, loaded)

    def loaded(result: object, error: BaseException | None) -> None:
        if error is None:
            advance(result)
            return
        steps.close()
        failed(error if isinstance(error, Exception) else RuntimeError(str(error)))

    advance(None)
