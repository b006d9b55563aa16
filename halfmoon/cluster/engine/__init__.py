"""The storage engine of a cluster: a shard's log in an object store and a database.

The frames of a log are appended to a cache, which is files as the local disk has them (core/storage/commitlog.py). What
makes them durable is a commit: the frames go to the object store or to the database, and one statement of the database
moves the end of the shard's log from where it was to where it is now, if the shard still has the epoch in which they
were written. So a node that has lost a shard cannot acknowledge anything, whatever it believes.

    pieces       what a log consists of, as the database lists it
    objects      the object store: the port
    database     heads, pieces, leases: the port
    footer       what stands in an object, so that the database can be made anew
    committing   what shards want to commit, grouped
"""
