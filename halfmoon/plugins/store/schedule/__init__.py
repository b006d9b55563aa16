"""Recurring messages: `plugin` names the hooks, `taking` takes schedules out of what is produced, `answering` is asked
about them, `firing` sends their messages; `book` is what there is, `records` is how the log keeps it, `times` says when
they are due."""
