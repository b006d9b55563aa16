"""The toolbox of plugins that move messages from one queue to another, as views, delays and retries do.

    from halfmoon.plugin import moving

Exactly one effect comes from *provenance*: a relayed batch and the proof of what it was made from are one frame in the
log (`FeatureContext.writer.append_relayed`), and what is still to be moved is worked out from these proofs alone. A
relay task (`Mover`) does a bounded piece of work between two yields; docs/hooks.md, halfmoon_features, shows one.

This module grows with the built-in plugins; unlike `halfmoon.plugin` it may change between minor versions.
"""

from __future__ import annotations

from halfmoon.core.append_types import Piece
from halfmoon.core.catalog.section import CatalogSection, Places
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.features import Arrivals, DerivedFiles, Feature, TopicPolicy
from halfmoon.core.records.batch_header import (
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
    BatchHeader,
)
from halfmoon.core.records.batches import batch_body, parse_header, set_log_append_time
from halfmoon.core.records.record_codec import Extent
from halfmoon.core.relay import Load, Mover
from halfmoon.core.storage.frame_reading import WholeFrame
from halfmoon.core.storage.storage import Read
from halfmoon.core.transactions.aborted import NONE_ABORTED, Aborted, AbortedBatches
from halfmoon.hooks.features import (
    Durability,
    FrameReading,
    KeyLookup,
    Lifetimes,
    LogReader,
    LogWriter,
    NackedMessages,
    NodeClock,
    RelayTasks,
    State,
    Topics,
    ViewChecks,
    WaitingMessages,
)
from halfmoon.hooks.schedules import Answer as ScheduleAnswer
from halfmoon.hooks.schedules import Asker as ScheduleAsker
from halfmoon.hooks.schedules import ChangeSchedule, CreateSchedule, ListSchedules, Schedule, Schedules
from halfmoon.hooks.schedules import Question as ScheduleQuestion
from halfmoon.schema.control import FROM_END, Binding
from halfmoon.schema.provenance import GivenUp, Origin, Provenance, SourceRange, SourceRun, decode_origin
from halfmoon.services.common.filtering import FoundInThread, found_in_thread, matches
from halfmoon.services.common.filters import takes_long
from halfmoon.services.common.gathering import (
    MERGE_BYTES,
    MERGE_RECORDS,
    Gathered,
    Outgoing,
    TimestampsTooFarApartError,
)
from halfmoon.services.common.lifetimes import FOREVER, expires_ms, milliseconds
from halfmoon.services.waiting.cancels import records_with

__all__ = [
    "CODEC_MASK",
    "CONTROL",
    "FOREVER",
    "FROM_END",
    "HEADER_BYTES",
    "MERGE_BYTES",
    "MERGE_RECORDS",
    "NONE_ABORTED",
    "TIMESTAMP_TYPE",
    "TRANSACTIONAL",
    "Aborted",
    "AbortedBatches",
    "Arrivals",
    "BatchHeader",
    "Binding",
    "CatalogSection",
    "ChangeSchedule",
    "CreateSchedule",
    "DerivedFiles",
    "Durability",
    "Extent",
    "Feature",
    "FoundInThread",
    "FrameReading",
    "Gathered",
    "GivenUp",
    "KeyLookup",
    "Lifetimes",
    "ListSchedules",
    "Load",
    "LogReader",
    "LogWriter",
    "Mover",
    "NackedMessages",
    "NodeClock",
    "Origin",
    "Outgoing",
    "Partition",
    "Piece",
    "Places",
    "Provenance",
    "Read",
    "RelayTasks",
    "Schedule",
    "ScheduleAnswer",
    "ScheduleAsker",
    "ScheduleQuestion",
    "Schedules",
    "SourceRange",
    "SourceRun",
    "State",
    "TimestampsTooFarApartError",
    "Topic",
    "TopicPolicy",
    "Topics",
    "ViewChecks",
    "WaitingMessages",
    "WholeFrame",
    "batch_body",
    "decode_origin",
    "expires_ms",
    "found_in_thread",
    "matches",
    "milliseconds",
    "parse_header",
    "records_with",
    "set_log_append_time",
    "takes_long",
]
