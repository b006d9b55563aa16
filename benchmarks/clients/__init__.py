"""The loads. Each is a function of a bootstrap server and keyword arguments that returns figures by name.

They run in a process of their own: `python -m benchmarks.clients NAME HOST:PORT '{"json": "arguments"}'` prints the
figures as one line of JSON.
"""
