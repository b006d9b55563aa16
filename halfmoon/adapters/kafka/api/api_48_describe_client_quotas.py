"""DescribeClientQuotas (48): the quotas that are set, by a filter over the parts of their entities (KIP-546).

Rules: ClientQuotasImage.describe. A filter speaks of each part that an entity must have: with that name, as the
default, or with either; `strict` leaves out entities that have other parts too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.durable import refuse, tells_state
from halfmoon.adapters.kafka.protocol import DescribeClientQuotasResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.quotas.service import CLIENT_ID, IP, USER, Quotas

if TYPE_CHECKING:
    from halfmoon.services.quotas.state import Entity

_Entry = DescribeClientQuotasResponse.EntryData

EXACT, DEFAULT, SPECIFIED = range(3)


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    response = DescribeClientQuotasResponse(throttle_time_ms=0, error_code=0, error_message=None, entries=[])
    try:
        names, anything = _filter(request.components)
    except BrokerError as error:
        refuse(response, error)
        response.entries = None
        return response
    response.entries = []
    for entity, quotas in list(ctx.services.get(Quotas).configured.items()):
        if _matches(entity, names, anything, bool(request.strict)):
            response.entries.append(
                _Entry(
                    entity=[_Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[_Entry.ValueData(key=key, value=value) for key, value in sorted(quotas.items())],
                )
            )
        yield
    return response


def _filter(components: Any) -> tuple[dict[str, str | None], set[str]]:
    """Parts that must have a certain name (None: be the default), and parts that must be there. Raises BrokerError."""
    names: dict[str, str | None] = {}
    anything: set[str] = set()
    for part in components:
        if not part.entity_type:
            raise BrokerError(Fault.INVALID_REQUEST, "invalid empty entity type")
        if part.entity_type in names or part.entity_type in anything:
            raise BrokerError(
                Fault.INVALID_REQUEST, f"entity type {part.entity_type} appears more than once in the filter"
            )
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise BrokerError(Fault.UNSUPPORTED_VERSION, f"unsupported entity type {part.entity_type}")
        if part.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise BrokerError(Fault.INVALID_REQUEST, f"unknown match type {part.match_type}")
        if (part.match is not None) != (part.match_type == EXACT):
            raise BrokerError(Fault.INVALID_REQUEST, "an exact match needs a name, other matches have none")
        if part.match_type == SPECIFIED:
            anything.add(part.entity_type)
        else:
            names[part.entity_type] = part.match
    asked = names.keys() | anything
    if IP in asked and len(asked) > 1:
        raise BrokerError(Fault.INVALID_REQUEST, "a filter cannot have an ip together with a user or client-id")
    return names, anything


def _matches(entity: Entity, names: dict[str, str | None], anything: set[str], strict: bool) -> bool:
    parts = dict(entity)
    return (
        (not strict or len(parts) == len(names) + len(anything))
        and all(kind in parts and parts[kind] == name for kind, name in names.items())
        and anything <= parts.keys()
    )
