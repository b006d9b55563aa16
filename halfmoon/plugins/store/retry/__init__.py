"""Retry and dead letters: `plugin` names the hooks, `state` is what the log says."""
