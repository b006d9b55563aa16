"""What a command says when it fails: one line, never a traceback."""

from __future__ import annotations

from halfmoon.errors import HalfmoonError


class CliError(HalfmoonError):
    """A command failed for a reason its user can act on. The message is one line; the exit code is 1."""


class OutputClosedError(Exception):
    """Whoever read our output stopped reading (`| head`). No failure: the command ends in silence."""


def one_line(text: object) -> str:
    """Any text as one line: line breaks and the blanks around them become one blank."""
    return " ".join(str(text).split())


def describe_code(error_code: int, message: str | None) -> str:
    """A Kafka error code as `NAME: message`, with kafka-python's description where the broker sent no message."""
    from kafka.errors import for_code

    return _named(for_code(error_code), message or "")


def describe_kafka_error(error: Exception) -> str:
    """What kafka-python raised, in one line. Named after Kafka's code, or the client's trouble."""
    from kafka.errors import BrokerResponseError

    said = " ".join(str(argument) for argument in error.args)
    if isinstance(error, BrokerResponseError):
        # kafka-python likes to put the whole request and response into the text: nobody reads that.
        return _named(type(error), "" if "Request" in said or "Response" in said else said)
    return one_line(f"{type(error).__name__.removesuffix('Error')}: {said}" if said else type(error).__name__)


def _named(kind: type, message: str) -> str:
    from kafka.errors import UnsupportedVersionError

    name = getattr(kind, "message", None) or kind.__name__
    if issubclass(kind, UnsupportedVersionError):
        message = "the broker does not offer what this needs; look for a service that is off in its broker.yaml"
    return one_line(f"{name}: {message or getattr(kind, 'description', None) or 'no reason given'}")
