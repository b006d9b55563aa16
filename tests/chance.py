"""How often the tests by chance (hypothesis) are tried, and with what.

A run of all tests tries the same examples every time, so that what fails is due to what was changed. To look for new
ones, HALFMOON_TEST_EXAMPLES=20 tries twenty times as many, from another seed each time, walks twice as far through the
state machines, and takes the time it needs:

    HALFMOON_TEST_EXAMPLES=20 make test ARGS='tests/core'
"""

from __future__ import annotations

import os
import random

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("HALFMOON_TEST_EXAMPLES", "0"))


def load_profile() -> None:
    """No example has a deadline: how long one takes says more of the machine than of the code."""
    settings.register_profile(
        "halfmoon", max_examples=100 * (TIMES or 1), derandomize=not TIMES, deadline=None, print_blob=True
    )
    settings.load_profile("halfmoon")


def trying(examples: int, steps: int = 50) -> settings:
    """So many examples, for a state machine so many steps at most in each. They may be slow and large."""
    return settings(
        max_examples=examples * (TIMES or 1),
        stateful_step_count=steps * (2 if TIMES else 1),
        suppress_health_check=list(HealthCheck),
    )


def seeded() -> random.Random:
    """Dice for a test that leaves moments to chance; the seed is printed, and HALFMOON_TEST_SEED=N brings it again."""
    seed = int(os.environ.get("HALFMOON_TEST_SEED", random.randrange(1 << 32)))
    print(f"HALFMOON_TEST_SEED={seed}")
    return random.Random(seed)
