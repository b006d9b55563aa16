"""Kafka's messages: their definitions, and the codec that reads and writes them. For the Kafka adapter and for
the command line; nothing here knows a connection, an event loop or a clock."""
