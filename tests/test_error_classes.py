"""What a negative acknowledgement says of an exception."""

from __future__ import annotations

import json

from halfmoon.error_classes import MAX_CLASSES_CHARACTERS, MAX_MESSAGE_CHARACTERS, error_classes, error_message


class BadOrderError(ValueError, KeyError):
    class InnerError(Exception):
        pass


def test_the_most_special_class_comes_first_and_those_of_all_errors_do_not() -> None:
    assert error_classes(BadOrderError()) == (
        f"{__name__}.BadOrderError,builtins.ValueError,builtins.KeyError,builtins.LookupError"
    )
    assert error_classes(BadOrderError.InnerError()) == f"{__name__}.BadOrderError.InnerError"
    assert error_classes(Exception()) == "builtins.Exception"
    assert error_classes(KeyboardInterrupt()) == "builtins.KeyboardInterrupt"
    assert error_classes(json.JSONDecodeError("", "", 0)) == "json.decoder.JSONDecodeError,builtins.ValueError"


def test_names_of_any_length() -> None:
    long = type("X" * 600, (ValueError,), {"__module__": "m"})
    longer = type("Y" * 600, (long,), {"__module__": "m"})
    assert error_classes(longer()) == "m." + "Y" * 600
    assert len(error_classes(type("Z" * 5_000, (Exception,), {})())) == MAX_CLASSES_CHARACTERS


def test_a_message_is_a_line_of_text() -> None:
    assert error_message(ValueError("no  total\n in it ")) == "no total in it"
    assert error_message(ValueError("x" * 5_000)) == "x" * MAX_MESSAGE_CHARACTERS
    assert error_message(ValueError("\ud800")) == "?"
    assert error_message(ValueError()) == ""


def test_an_exception_that_cannot_say_what_it_is() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_message(BrokenError()) == ""
