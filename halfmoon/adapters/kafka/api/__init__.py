"""One module per Kafka API, named after its key: the listing of this folder is the list of what is supported; `table`
says what each of them needs."""

from __future__ import annotations

from halfmoon.adapters.kafka.registry import Api


def registered() -> dict[int, Api]:
    """Every API, by key."""
    from halfmoon.adapters.kafka.api.table import APIS  # which imports modules of this package

    return APIS
