"""How clients of Kafka's protocol encrypt, and who they are: `client.properties`, read once, and what libraries take.

    properties.py    the file → `Security`
    clients.py       `Security` → an SSLContext, arguments of kafka-python, configurations of librdkafka and of Java

It opens no connection. The command line, the pipeline, the demo and the testing kit use it; no broker does.
"""

from halfmoon.securing.properties import PLAINTEXT, Security, SecurityError, read

__all__ = ["PLAINTEXT", "Security", "SecurityError", "read"]
