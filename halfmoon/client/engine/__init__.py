"""What a client does, without a socket, a thread or a clock: it is told what has happened and how late it is, and asks
its shell to write, connect, close and call listeners (driver.py). The shells are halfmoon.client.threads and
halfmoon.client.aio."""
