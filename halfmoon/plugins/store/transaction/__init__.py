"""Half messages: `plugin` names the hooks, and knows which half messages have no end yet. What decides about waiting
messages of any plugin is shared (hook `halfmoon_relays`)."""
