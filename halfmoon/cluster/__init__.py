"""What processes need that share the topics: where everything is placed, and the catalog that all of them agree on.

A *shard* is a log with the partitions and the groups that lie in it. How many there are is fixed when the data
directory is made; who owns which may change at any start (docs/decisions/0164-shards.md).
"""
