"""UpdateFeatures (57): every feature is at its level for good, so only that level is taken (KIP-584).

One refusal refuses all, as in Kafka; version 2 has no results per feature any more.

Rules: FeatureControlManager.updateFeatures, FeatureUpdate.UpgradeType.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.features import check_update
from halfmoon.adapters.kafka.protocol import UpdateFeaturesResponse
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError

UPGRADE = 1


def handle(ctx: Context, request: Any) -> object:
    response = UpdateFeaturesResponse(throttle_time_ms=0, error_code=0, error_message=None, results=[])
    for asked in request.feature_updates:
        upgrade = not asked.allow_downgrade if ctx.api_version == 0 else asked.upgrade_type == UPGRADE
        try:
            check_update(ctx.peer.apis.features, asked.feature, asked.max_version_level, upgrade)
        except BrokerError as error:
            refuse(response, BrokerError(error.fault, f"no feature was updated: {error.message}"))
            return response
    response.results = [
        UpdateFeaturesResponse.UpdatableFeatureResult(feature=asked.feature, error_code=0, error_message=None)
        for asked in request.feature_updates
    ]
    return response
