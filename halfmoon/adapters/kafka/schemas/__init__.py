"""Schemas of messages that kafka-python does not have, one JSON file each, as its `ApiMessage` reads them.

A file is named after its message (`ConsumerGroupHeartbeatRequest.json`) and says its API key, its versions, and of
every field the name, the type and the versions that have it. `protocol.py` makes the classes:

    class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=schemas.__name__): ...
"""
