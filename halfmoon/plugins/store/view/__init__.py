"""Filtered views: `plugin` names the hooks, `views` knows all views and fills them with an `updater` each."""
