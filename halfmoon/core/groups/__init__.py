"""Consumer groups: who is a member, of which generation, with which share. Start reading at `coordinator`."""

from __future__ import annotations

from halfmoon.core.groups.coordinator import GroupCoordinator
from halfmoon.core.groups.messages import (
    BeatResult,
    Effect,
    GroupDescription,
    GroupListing,
    GroupSettings,
    Join,
    JoinedMember,
    JoinResult,
    MemberDescription,
    Persist,
    Reply,
    Sync,
    SyncResult,
)
from halfmoon.schema.groups import GroupRecord, Protocols, SavedMember

__all__ = [
    "BeatResult",
    "Effect",
    "GroupCoordinator",
    "GroupDescription",
    "GroupListing",
    "GroupRecord",
    "GroupSettings",
    "Join",
    "JoinResult",
    "JoinedMember",
    "MemberDescription",
    "Persist",
    "Protocols",
    "Reply",
    "SavedMember",
    "Sync",
    "SyncResult",
]
