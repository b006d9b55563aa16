"""The storage engine of a cluster: a shard's log in an object store and a database.

The frames of a log are appended to a cache, which is files as the local disk has them (core/storage/commitlog.py). What
makes them durable is a commit: the frames go to the object store or to the database, and one statement of the database
moves the end of the shard's log from where it was to where it is now, if the shard still has the epoch in which they
were written. So a node that has lost a shard cannot acknowledge anything, whatever it believes.

    database     heads, pieces, leases: the port
    objects      the object store: the port; `store_watch`: whether it is reached
    trying       calls to either, made some times; `insisting`: until they succeed
    pieces       what a log consists of, as the database lists it; `piece_list`: as its owner knows it
    naming       names of objects
    footer       what stands in an object, so that the database can be made anew

    storage      the engine of one shard, with its log (`log`)
    cached_files the files of that log, as far as they are here; `caching`: as far as there is room
    backing      what is behind them
    committing   what shards want to commit, grouped
    moving       from the database into objects, and of many pieces one; `merging`: of which
    sweeping     objects that nobody needs
    placed       batches of logs that other nodes own

    membership   a node lives, takes shards and gives some away; `sharing`: which
"""
