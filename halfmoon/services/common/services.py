"""What a node offers beside its kernel, by type: so that who answers requests names the service it needs.

A service that is off is not there. Whoever cannot do without it is not offered then (adapters/kafka/registry.py), so
`get` never fails while a request is answered; `find` is for those that can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

T = TypeVar("T")


class Services:
    __slots__ = ("_by_type",)

    def __init__(self, services: Iterable[object] = ()) -> None:
        self._by_type: dict[type[Any], object] = {type(service): service for service in services}

    def add(self, service: object) -> None:
        """One that a feature of a plugin offers. Before the first request."""
        self._by_type[type(service)] = service

    def __iter__(self) -> Iterator[object]:
        return iter(self._by_type.values())

    def get(self, kind: type[T]) -> T:
        """The service of that type. Raises KeyError where it is off."""
        return cast(T, self._by_type[kind])

    def find(self, kind: type[T]) -> T | None:
        """As `get`; None where it is off."""
        return cast("T | None", self._by_type.get(kind))
