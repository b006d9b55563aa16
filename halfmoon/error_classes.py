"""What a negative acknowledgement says of the exception that has caused it: its classes, for retry policies, and its
message, for whoever looks at the dead letter (docs/retry.md)."""

from __future__ import annotations

CLASS_HEADER, MESSAGE_HEADER = "RETRY_ERROR_CLASS", "RETRY_ERROR_MESSAGE"
MAX_CLASSES_CHARACTERS = 1_000
MAX_MESSAGE_CHARACTERS = 1_000
_OF_ALL = (object, BaseException, Exception)


def error_classes(error: BaseException) -> str:
    """The names of its class and of its bases, the most special first, separated by commas:
    `acme.orders.BadOrder,builtins.ValueError`. Without those that every error has, unless it has no other."""
    classes = [each for each in type(error).__mro__ if each not in _OF_ALL] or [type(error)]
    names = [f"{each.__module__}.{each.__qualname__}" for each in classes]
    while len(names) > 1 and sum(map(len, names)) + len(names) > MAX_CLASSES_CHARACTERS:
        names.pop()
    return ",".join(names)[:MAX_CLASSES_CHARACTERS]


def error_message(error: BaseException) -> str:
    """Its first MAX_MESSAGE_CHARACTERS characters, in one line of printable text. An exception that cannot say what it
    is about, as `str` fails, has none."""
    try:
        text = str(error)
    except Exception:
        return ""
    said = " ".join(text[: 2 * MAX_MESSAGE_CHARACTERS].split())[:MAX_MESSAGE_CHARACTERS]
    return said.encode("utf-8", "replace").decode()
