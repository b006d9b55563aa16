"""Groups of the new consumer protocol (KIP-848): the broker assigns. Start reading at `rebalancing`.

messages        what goes in, and what operators see
model           a group: its members, who holds what, who is to get what
reconciliation  a member's next step from what it holds to what it is to hold
targets         who is to hold what: the allocation strategies asked
subscriptions   which topics that is about
rebalancing     what a change of a member sets going; time-outs
heartbeats      the new protocol's one request
classic         members that still speak JoinGroup and SyncGroup, in such a group
persisted       a group's state as the log has it
"""
