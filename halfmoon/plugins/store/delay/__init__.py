"""Delayed messages and their cancels: `plugin` names the hooks, `cancelling` finds what is cancelled, `state` is what
the log says of it."""
