"""What a process says first, in parts, in good time, or not at all."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import IO

import pytest

from halfmoon.testing.first_line import first_line


@pytest.fixture
def pipe() -> Iterator[tuple[IO[bytes], int]]:
    read, write = os.pipe()
    with open(read, "rb") as reading:  # noqa: PTH123 (a descriptor)
        yield reading, write


def test_it_may_come_in_parts(pipe: tuple[IO[bytes], int]) -> None:
    reading, write = pipe
    os.write(write, b"ready ")
    timer = threading.Timer(0.05, os.write, (write, b"kafka=h:1\n"))
    timer.start()
    assert first_line(reading, 10.0) == "ready kafka=h:1\n"
    timer.join()
    os.close(write)


@pytest.mark.parametrize("said", [b"", b"half of"])
def test_who_ends_before_has_said_less(pipe: tuple[IO[bytes], int], said: bytes) -> None:
    reading, write = pipe
    os.write(write, said)
    os.close(write)
    assert first_line(reading, 10.0) == said.decode()


def test_nobody_waits_for_ever(pipe: tuple[IO[bytes], int]) -> None:
    reading, write = pipe
    os.write(write, b"half of")
    with pytest.raises(TimeoutError, match=r"after 0\.05 s"):
        first_line(reading, 0.05)
    os.close(write)
