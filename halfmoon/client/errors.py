"""The exceptions of the clients."""

from __future__ import annotations


class ClientError(Exception):
    """Base class of all errors of the clients."""


class ConfigError(ClientError, ValueError):
    """An invalid option, name or expression: nothing was sent."""


class MessageError(ClientError, ValueError):
    """An invalid message: too long, without a body, with a property that cannot be encoded. Nothing was sent."""


class NotRunningError(ClientError):
    """The client was not started, or is closed."""


class RouteError(ClientError):
    """No name server knows the topic, or none answers."""


class TopicUnknownError(RouteError):
    """A name server answers that it does not know the topic."""


class ConnectionFailedError(ClientError, ConnectionError):
    """A node cannot be reached, or the connection closed before the answer. If the request had been sent, it is unknown
    whether the broker has executed it."""


class RequestTimeoutError(ClientError, TimeoutError):
    """No answer in time. It is unknown whether the broker has executed the request."""


class StorageError(ClientError):
    """A broadcasting consumer's offset file cannot be written."""


class BrokerRefusedError(ClientError):
    """A broker, or a name server, answered with a code other than SUCCESS."""

    def __init__(self, code: int, remark: str | None, address: str = "") -> None:
        super().__init__(f"code {code}{f' of {address}' if address else ''}: {remark or 'no remark'}")
        self.code = code
        """RocketMQ's response code (org.apache.rocketmq.remoting.protocol.ResponseCode)."""
        self.remark = remark
        self.address = address
