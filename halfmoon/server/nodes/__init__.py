"""One of several nodes over a database and an object store: what it adds to a process with shards."""
