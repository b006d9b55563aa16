"""A cluster as it was at one moment: what stands in its database, and the objects that this names.

ports       the database, as all of this uses it
tables      rows of the database in a file
copied      what a backup is: the folder, and what says that it is whole
saving      from a cluster into a folder, while its nodes serve
restoring   from a folder into an empty database and an empty part of a store
returning   a database that was brought back to an earlier moment, over the store as it is
rebuilding  a database made of the objects in the store, for the case that there is no backup; `chains`: which pieces
            are a shard's log
parallel    work on many things, some of them at once
"""
