"""The `halfmoon` command: noun first, then verb, as in `halfmoon topic create`.

`main.py` puts the commands together and is the only place that turns errors into a line and an exit code. Commands that
talk to a broker do it as any Kafka client does, through kafka-python (`connect.py`), so they serve a real Kafka too.

Starting must be quick (`halfmoon --help` and shell completion run it all the time): kafka-python, rich's parts and the
broker itself are imported inside the functions that need them.
"""
