"""`halfmoon serve` that forgets its longest turns at SIGUSR1, and then says so: each run of an extreme begins anew."""

from __future__ import annotations

import signal

from halfmoon.__main__ import main
from halfmoon.server import process
from halfmoon.server.measured_loop import MeasuredLoop

FORGOTTEN = "forgotten"


class ForgetfulLoop(MeasuredLoop):
    def run_forever(self) -> None:
        self.add_signal_handler(signal.SIGUSR1, self._forget)
        super().run_forever()

    def _forget(self) -> None:
        self.turns.forget()
        print(FORGOTTEN, flush=True)


if __name__ == "__main__":
    process.MeasuredLoop = ForgetfulLoop  # type: ignore[misc]
    main()
