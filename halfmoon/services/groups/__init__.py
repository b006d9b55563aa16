"""Consumer groups: who is a member, of which generation, with which share, and what offsets they have committed.

names         which kind of group has a name; lists, deletions
service       groups as adapters see them
journal       what the coordinator decides, written to the log
building      the coordinator, made of the broker's settings and topics
coordination  the door to groups of both protocols: pure decisions
coordinator   the classic protocol (joining, rebalance, model, step, messages, descriptions)
consumer/     the consumer protocol (KIP-848)
state         what the log remembers
"""
