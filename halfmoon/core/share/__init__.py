"""Share groups (KIP-932): consumers that share partitions and acknowledge record by record.

A *share partition* is what one share group knows of one partition: from which offset on records are not finished
(KIP: SPSO), and of those that were given out, which state they are in. It is a pure state machine without a clock
(`share_partition.py`) over runs of offsets in equal states (`ledger.py`). `sessions.py` are the share sessions of
connections, `membership.py` is who belongs to a group and reads which partitions, `options.py` what a group may
configure, `reading.py` finds batches, `service.py` carries it all out on the log, and `dead_letters.py` moves what was
given up.
"""
