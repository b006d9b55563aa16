"""Working out an answer in steps, some of which read from the disk: those run in a thread, the others in the loop. At a
pause others have their turn. A step may also be an AsksFirstError: the steps go on when that is told."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from halfmoon.core.relay import Load
from halfmoon.errors import AsksFirstError, BrokerError

AnswerT = TypeVar("AnswerT")
AskingSlices = Generator[Load | AsksFirstError | None, Any, AnswerT]
"""Slices that also ask somebody."""
InThread = Callable[[Callable[[], object], Callable[[object, BaseException | None], None]], None]
"""in_thread(work, then): runs `work` off the loop, and then(result, error) in it."""
Soon = Callable[[Callable[[], object]], object]
"""soon(work): runs `work` in the loop when others have had their turn."""


def run_steps(
    steps: AskingSlices[AnswerT],
    in_thread: InThread,
    answered: Callable[[AnswerT], None],
    failed: Callable[[Exception], None],
    soon: Soon | None = None,
) -> None:
    """Carry out `steps` to the end; one of the callbacks is called once, in the loop. `soon`: for slices."""

    _Run(steps, in_thread, answered, failed, soon).go_on()


class _Run(Generic[AnswerT]):
    """Steps that are being carried out. Whoever waits for one of them knows it, and it nobody else."""

    def __init__(
        self,
        steps: AskingSlices[AnswerT],
        in_thread: InThread,
        answered: Callable[[AnswerT], None],
        failed: Callable[[Exception], None],
        soon: Soon | None,
    ) -> None:
        self._steps = steps
        self._in_thread = in_thread
        self._answered = answered
        self._failed = failed
        self._soon = soon

    def go_on(self) -> None:
        self._advance(lambda: next(self._steps))

    def _advance(self, step: Callable[[], Any]) -> None:
        try:
            load = step()
        except StopIteration as done:
            self._answered(done.value)
        except Exception as error:
            self._failed(error)
        else:
            if load is None:
                assert self._soon is not None, "steps without slices yield loads"
                self._soon(self.go_on)
            elif isinstance(load, AsksFirstError):
                load.begin(self._told)
            else:
                self._in_thread(load, self._loaded)

    def _loaded(self, result: object, error: BaseException | None) -> None:
        if error is None:
            self._advance(lambda: self._steps.send(result))
        else:
            failure = error if isinstance(error, Exception) else RuntimeError(str(error))
            self._advance(lambda: self._steps.throw(failure))

    def _told(self, error: BrokerError | None) -> None:
        self._loaded(None, error)
