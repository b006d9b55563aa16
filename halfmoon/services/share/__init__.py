"""Share groups (KIP-932): consumers that share partitions and acknowledge record by record.

A *share partition* is what one share group knows of one partition: from which offset on records are not finished
(KIP: SPSO), and of those that were given out, which state they are in.

delivery_state   runs of offsets in equal states
share_partition  who has which record: a pure state machine without a clock
parts            the share partitions at work
reading          finds batches
expiring         looks up when their records expire
delivery         gives records out and takes acknowledgements, on the log
dead_letters     writes the dead letters of what is rejected, exhausted or expired
sessions         the share sessions of connections
membership       who belongs to a group and reads which partitions
options          what a group may configure
service          share groups as adapters see them
state            what the log remembers
"""
