"""Working out an answer in steps, some of which read from the disk: those run in a thread, the others in the loop. At a
pause others have their turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from halfmoon.core.steps import Slices

AnswerT = TypeVar("AnswerT")
InThread = Callable[[Callable[[], object], Callable[[object, BaseException | None], None]], None]
"""in_thread(work, then): runs `work` off the loop, and then(result, error) in it."""
Soon = Callable[[Callable[[], object]], object]
"""soon(work): runs `work` in the loop when others have had their turn."""


def run_steps(
    steps: Slices[AnswerT],
    in_thread: InThread,
    answered: Callable[[AnswerT], None],
    failed: Callable[[Exception], None],
    soon: Soon | None = None,
) -> None:
    """Carry out `steps` to the end; one of the callbacks is called once, in the loop. `soon`: for slices."""

    def advance(step: Callable[[], Any]) -> None:
        try:
            load = step()
        except StopIteration as done:
            answered(done.value)
        except Exception as error:
            failed(error)
        else:
            if load is not None:
                in_thread(load, loaded)
            else:
                assert soon is not None, "steps without slices yield loads"
                soon(lambda: advance(lambda: next(steps)))

    def loaded(result: object, error: BaseException | None) -> None:
        if error is None:
            advance(lambda: steps.send(result))
        else:
            advance(lambda: steps.throw(error if isinstance(error, Exception) else RuntimeError(str(error))))

    advance(lambda: next(steps))
