"""What a client raises."""

from __future__ import annotations


class ClientError(Exception):
    """Anything that goes wrong here."""


class ConfigError(ClientError, ValueError):
    """An option, a name or an expression that makes no sense: nothing was sent."""


class MessageError(ClientError, ValueError):
    """A message that no broker takes: too long, without a body, with a property that cannot be written. Nothing was
    sent."""


class NotRunningError(ClientError):
    """The client was not started, or is closed."""


class RouteError(ClientError):
    """No name server knows the topic, or none could be asked."""


class TopicUnknownError(RouteError):
    """A name server answers, and does not know the topic."""


class ConnectionFailedError(ClientError, ConnectionError):
    """A node cannot be reached, or the connection ended before the answer came. Whether the request was carried out is
    not known where it had been sent."""


class RequestTimeoutError(ClientError, TimeoutError):
    """No answer in time. Whether the request was carried out is not known."""


class StorageError(ClientError):
    """The file in which a broadcasting consumer keeps its progress cannot be written."""


class BrokerRefusedError(ClientError):
    """A broker, or a name server, answered with a code other than SUCCESS."""

    def __init__(self, code: int, remark: str | None, address: str = "") -> None:
        super().__init__(f"code {code}{f' of {address}' if address else ''}: {remark or 'no remark'}")
        self.code = code
        """RocketMQ's response code (org.apache.rocketmq.remoting.protocol.ResponseCode)."""
        self.remark = remark
        self.address = address
