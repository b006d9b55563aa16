"""How clients of Kafka's protocol encrypt, and who they are: `client.properties`, read once, and what libraries take.

    properties.py    the file → `Security`
    clients.py       `Security` → an SSLContext, arguments of kafka-python, configurations of librdkafka and of Java

It opens no connection, but for access tokens (access_tokens.py). The command line, the pipeline, the demo and the
testing kit use it; no broker does.
"""

from halfmoon.securing.errors import SecurityError
from halfmoon.securing.properties import PLAINTEXT, Security, read

__all__ = ["PLAINTEXT", "Security", "SecurityError", "read"]
