"""One file per API: the fields of its request and its response. `halfmoon/kafka_wire/definition.py` has the grammar."""
