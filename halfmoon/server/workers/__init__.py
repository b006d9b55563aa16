"""A process that is one of several: its shards, and what it does with the others."""
