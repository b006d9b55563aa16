"""AlterClientQuotas (49): set and remove quotas of entities, each for itself (KIP-546).

What may be set for whom: services/quotas/service.py. What clients do about it is `throttling`'s.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.duplicates import duplicates_in_slices
from halfmoon.adapters.kafka.durable import each_of, refuse, tells_state
from halfmoon.adapters.kafka.protocol import AlterClientQuotasResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.quotas.service import Alteration, Quotas

_Entry = AlterClientQuotasResponse.EntryData


@tells_state(each_of("entries"))
def handle(ctx: Context, request: Any) -> Slices[object]:
    alterations = []
    for entry in request.entries:
        alterations.append(
            Alteration(
                [(part.entity_type, part.entity_name) for part in entry.entity],
                [(op.key, None if op.remove else op.value) for op in entry.ops],
            )
        )
        yield
    twice = yield from duplicates_in_slices(frozenset(alteration.entity) for alteration in alterations)
    results = []
    for alteration in alterations:
        yield
        result = _Entry(
            error_code=0,
            error_message=None,
            entity=[_Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in alteration.entity],
        )
        results.append(result)
        try:
            if frozenset(alteration.entity) in twice:
                raise BrokerError(Fault.INVALID_REQUEST, "the entity appears more than once")
            ctx.services.get(Quotas).alter(alteration, validate_only=bool(request.validate_only))
        except BrokerError as error:
            refuse(result, error)
    return AlterClientQuotasResponse(throttle_time_ms=0, entries=results)
