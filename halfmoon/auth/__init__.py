"""Authentication mechanisms, without I/O, clock, chance and event loop: what they need of these comes as an argument.

A mechanism says who somebody is, or raises `AuthenticationError`. Its text is for the broker's log alone: whoever fails
to authenticate is told the same sentence whatever the reason. TLS, SCRAM, PLAIN and RocketMQ's signatures need the
standard library only; `oauth` and `sealing` need the extra `halfmoon[auth]`.
"""
