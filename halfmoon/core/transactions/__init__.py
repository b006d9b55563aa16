"""Transactions of producers (KIP-98, KIP-360, KIP-890): batches in many partitions, and a group's offsets, that count
together or not at all.

What these words mean here is what they mean in Kafka: a *transactional id* names a producer across restarts; its
*producer id* and *epoch* tell its batches from those of earlier incarnations; a *marker* is a control batch that ends
the transaction in one partition; the *last stable offset* of a partition is the first offset that is not decided yet.
RocketMQ's transactions (half messages and check-back, plugins/store/transaction) are another thing and share nothing
with these.

- `partition.py`: what one partition knows: which transactions are open in it, which were aborted.
- `aborted.py`: the aborted ones, packed.
- `marker.py`: the bytes of markers.

Transactional ids, what a request may do to one, and how a transaction ends in the log are services/transactions. All
partitions are here and the log is one, so the markers of a transaction, the offsets it commits and its end are one
frame group: a commit is atomic. Only large ones are prepared first.
"""
